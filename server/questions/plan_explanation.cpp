#include "server/questions/plan_explanation.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/planner.h"

namespace tidetape::server {
namespace {

using planner::BlockPlan;
using planner::BlockTape;
using planner::Storage;
using planner::StorageKind;

// The plan of one block alone.
class LoneBlock {
 public:
  LoneBlock(const BlockTape& tape, const planner::BlockInstance& instance) {
    problem_.memory_limit_bytes = planner::kUnlimitedBytes;
    problem_.tapes = {tape};
    problem_.blocks = {instance};
    problem_.blocks[0].tape = 0;
  }

  absl::StatusOr<BlockPlan> Evaluate(const std::vector<int32_t>& saved) const {
    auto plan = planner::EvaluatePlan(problem_, {saved});
    if (!plan.ok()) return plan.status();
    return std::move(plan->blocks[0]);
  }

 private:
  planner::PlanningProblem problem_;
};

bool Contains(const std::vector<int32_t>& sorted, int32_t value) { return std::binary_search(sorted.begin(), sorted.end(), value); }

std::string Seconds(double seconds) { return absl::StrFormat("%.3g ms", seconds * 1e3); }

std::string Bytes(int64_t bytes) { return absl::StrFormat("%.3g MiB", static_cast<double>(bytes) / (1 << 20)); }

std::string WhySaved(const Storage& storage, const v1::ExplainedValue& value, bool can_change) {
  if (storage.must_save) return "kept: it cannot be replayed, or a pin says so";
  if (!can_change) return "kept: without it the block's backward cannot be replayed";
  if (storage.held_anyway) return "kept for nothing: somebody else holds it until the block's backward";
  return absl::StrCat("kept: letting it go would free ", Bytes(-value.other_choice_bytes()), " and cost ",
                      Seconds(value.other_choice_seconds()), " more replay");
}

std::string WhyReplayed(const Storage& storage, const v1::ExplainedValue& value, bool can_change) {
  if (storage.must_recompute || !can_change) return "replayed: a pin says so";
  return absl::StrCat("replayed: keeping it would take ", Bytes(value.other_choice_bytes()), " and save ",
                      Seconds(-value.other_choice_seconds()), " of replay");
}

}  // namespace

absl::StatusOr<std::vector<v1::ExplainedValue>> ExplainBlock(const BlockTape& tape, const planner::BlockInstance& instance,
                                                             const std::vector<int32_t>& saved, const std::vector<int32_t>& moved) {
  const LoneBlock block(tape, instance);
  // As far as replay goes a moved value is a saved one.
  std::vector<int32_t> kept = saved;
  for (const int32_t s : moved) {
    if (s < 0 || static_cast<size_t>(s) >= tape.storages.size()) {
      return absl::FailedPreconditionError(absl::StrCat("block '", tape.name, "': the plan moves storage ", s,
                                                        ", but the tape has ", tape.storages.size(), " storages"));
    }
    if (tape.storages[s].kind == StorageKind::kIntermediate) kept.push_back(s);
  }
  std::sort(kept.begin(), kept.end());
  const auto plan = block.Evaluate(kept);
  if (!plan.ok()) return plan.status();

  // Replay time by the storage that it makes; -1: nobody makes it.
  std::vector<double> made_by_replay(tape.storages.size(), -1);
  for (const int32_t op : plan->replayed) {
    for (const int32_t storage : tape.ops[op].writes) {
      made_by_replay[storage] = std::max(made_by_replay[storage], 0.0) + tape.ops[op].cost_seconds;
    }
  }
  std::vector<v1::ExplainedValue> values;
  for (int32_t i = 0; i < static_cast<int32_t>(tape.storages.size()); ++i) {
    const Storage& storage = tape.storages[i];
    const bool is_moved = Contains(moved, i);
    if (storage.kind != StorageKind::kIntermediate && !is_moved) continue;
    v1::ExplainedValue& value = values.emplace_back();
    value.set_storage(i);
    value.set_label(storage.label);
    value.set_site(storage.site);
    value.set_bytes(storage.bytes);
    if (storage.kind != StorageKind::kIntermediate) {
      value.set_action(v1::ACTION_MOVE);
      value.set_why("moved: an input that nobody else holds until the block's backward");
      continue;
    }
    const bool is_saved = Contains(plan->saved, i);
    if (!is_saved && made_by_replay[i] < 0) {
      value.set_why("let go: backward does not read it, and no replay needs it");
      continue;
    }
    std::vector<int32_t> other = plan->saved;
    if (is_saved) {
      other.erase(std::find(other.begin(), other.end(), i));
    } else {
      other.insert(std::upper_bound(other.begin(), other.end(), i), i);
    }
    const auto changed = block.Evaluate(other);
    // What the planner refuses is no choice: must-save storages, unreplayable producers.
    const bool can_change = changed.ok() && !(storage.must_save && is_saved) && !storage.must_recompute;
    if (can_change) {
      value.set_other_choice_seconds(changed->replay_seconds - plan->replay_seconds);
      value.set_other_choice_bytes(changed->saved_bytes - plan->saved_bytes);
    }
    if (is_saved) {
      value.set_action(is_moved ? v1::ACTION_MOVE : v1::ACTION_SAVE);
      value.set_why(absl::StrCat(is_moved ? "moved: " : "", WhySaved(storage, value, can_change)));
    } else {
      value.set_action(v1::ACTION_REPLAY);
      value.set_replay_seconds(made_by_replay[i]);
      value.set_why(WhyReplayed(storage, value, can_change));
    }
  }
  return values;
}

}  // namespace tidetape::server
