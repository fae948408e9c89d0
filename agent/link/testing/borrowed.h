// C structs made from planner structs, for tests: the way that the tape's library fills them.
#ifndef TIDETAPE_AGENT_LINK_TESTING_BORROWED_H_
#define TIDETAPE_AGENT_LINK_TESTING_BORROWED_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "agent/link/tt_link.h"
#include "planner/job/measurement.h"
#include "planner/model/problem.h"

namespace tidetape::link {

// Both borrow from the struct that they are made of, which must stay as it is.
class BorrowedTape {
 public:
  explicit BorrowedTape(const planner::BlockTape& tape) {
    for (const planner::Storage& s : tape.storages) {
      storages_.push_back({s.bytes, s.site, s.label.c_str(), static_cast<uint8_t>(static_cast<int>(s.kind) + 1), s.must_save,
                           s.must_recompute, s.held_anyway, s.sampled_bytes.data(), s.sampled_bytes.size()});
    }
    for (const planner::Op& op : tape.ops) {
      ops_.push_back(
          {op.name.c_str(), op.cost_seconds, Indices(op.reads), Indices(op.writes), op.replay_workspace_bytes, op.replayable});
    }
    for (const planner::Value& value : tape.values) values_.push_back({value.storage, value.version, value.copy_seconds});
    for (const planner::BackwardEvent& event : tape.backward) {
      backward_.push_back({Indices(event.reads), Indices(event.releases), event.gradient_live_bytes, event.start_live_bytes});
    }
    tape_ = {tape.name.c_str(),      tape.structure_hash, storages_.data(), storages_.size(), ops_.data(),     ops_.size(),
             Indices(tape.consumed), values_.data(),      values_.size(),   backward_.data(), backward_.size()};
    if (!tape.forward_slack_bytes.empty()) tape_.forward_slack_bytes = tape.forward_slack_bytes.data();
  }
  BorrowedTape(const BorrowedTape&) = delete;

  tt_block_tape& tape() { return tape_; }

 private:
  static tt_indices Indices(const std::vector<int32_t>& list) { return {list.data(), list.size()}; }

  std::vector<tt_storage> storages_;
  std::vector<tt_op> ops_;
  std::vector<tt_value> values_;
  std::vector<tt_backward_event> backward_;
  tt_block_tape tape_;
};

class BorrowedReport {
 public:
  BorrowedReport(int64_t step, const planner::MemoryProfile* profile, const std::vector<planner::TapeCosts>& costs = {}) {
    report_ = {};
    report_.step = step;
    report_.step_seconds = 0.25;
    if (profile != nullptr) {
      for (const planner::ProfiledBlock& block : profile->blocks) {
        const planner::BlockInstance& instance = block.instance;
        std::vector<tt_block_option>& options = options_.emplace_back();
        for (const planner::BlockOption& option : instance.options) {
          options.push_back({option.saved_bytes, option.own_peak_bytes, option.seconds, option.label.c_str()});
        }
        blocks_.push_back({instance.name.c_str(), block.structure_hash, instance.forward_base_bytes, instance.backward_base_bytes,
                           instance.backward_transient_bytes, Data(instance.gradient_live_bytes), Data(instance.start_live_bytes),
                           instance.gradient_live_bytes.size(), block.held_inputs.data(), block.held_inputs.size(), options.data(),
                           options.size()});
      }
      report_.has_profile = 1;
      report_.steady = profile->steady;
      report_.early = profile->early;
      report_.blocks = blocks_.data();
      report_.num_blocks = blocks_.size();
      report_.head_peak_bytes = profile->head_peak_bytes;
      report_.optimizer_peak_bytes = profile->optimizer_peak_bytes;
      report_.host_bytes_limit = profile->host_bytes_limit;
      report_.host_bytes_per_second = profile->host_bytes_per_second;
      for (const planner::ScheduledPart& part : profile->schedule) {
        schedule_.push_back(part.phase == planner::Phase::kHead      ? 0
                            : part.phase == planner::Phase::kForward ? part.block + 1
                                                                     : -(part.block + 1));
      }
      report_.schedule = schedule_.data();
      report_.num_schedule = schedule_.size();
      report_.block_headroom_bytes = profile->headroom.block_bytes;
      report_.head_headroom_bytes = profile->headroom.head_bytes;
      report_.optimizer_headroom_bytes = profile->headroom.optimizer_bytes;
    }
    for (const planner::TapeCosts& tape : costs) {
      costs_.push_back(
          {tape.structure_hash, tape.cost_seconds.data(), tape.replay_workspace_bytes.data(), tape.cost_seconds.size()});
    }
    report_.costs = costs_.data();
    report_.num_costs = costs_.size();
  }
  BorrowedReport(const BorrowedReport&) = delete;

  tt_step_report& report() { return report_; }

 private:
  static const int64_t* Data(const std::vector<int64_t>& list) { return list.empty() ? nullptr : list.data(); }

  std::deque<std::vector<tt_block_option>> options_;
  std::vector<tt_profiled_block> blocks_;
  std::vector<int32_t> schedule_;
  std::vector<tt_tape_costs> costs_;
  tt_step_report report_;
};

// Options of rank 0 of 1 with a short job name.
inline tt_link_options MakeOptions(const char* planner, int64_t memory_limit_bytes) {
  tt_link_options options = {};
  options.planner = planner;
  options.job = "job";
  options.incarnation = "first";
  options.incarnation_order = 1;
  options.world_size = 1;
  options.memory_limit_bytes = memory_limit_bytes;
  return options;
}

}  // namespace tidetape::link

#endif  // TIDETAPE_AGENT_LINK_TESTING_BORROWED_H_
