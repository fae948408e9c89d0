#include "server/job/known_runs.h"

#include <algorithm>

namespace tidetape::server {
namespace {

using planner::BlockInstance;
using planner::BlockTape;

// FNV-1a. absl's hash differs from process to process.
class StableHash {
 public:
  void Add(uint64_t word) {
    for (int shift = 0; shift < 64; shift += 8) AddByte(static_cast<uint8_t>(word >> shift));
  }
  void Add(const std::string& text) {
    Add(text.size());
    for (const char c : text) AddByte(static_cast<uint8_t>(c));
  }
  uint64_t value() const { return value_; }

 private:
  void AddByte(uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001b3; }

  uint64_t value_ = 0xcbf29ce484222325;
};

bool SameTape(const BlockTape& a, const BlockTape& b) {
  const auto same_op = [](const planner::Op& x, const planner::Op& y) {
    return x.name == y.name && x.reads == y.reads && x.writes == y.writes;
  };
  const auto same_storage = [](const planner::Storage& x, const planner::Storage& y) {
    return x.bytes == y.bytes && x.kind == y.kind && x.site == y.site;
  };
  return std::equal(a.ops.begin(), a.ops.end(), b.ops.begin(), b.ops.end(), same_op) &&
         std::equal(a.storages.begin(), a.storages.end(), b.storages.begin(), b.storages.end(), same_storage) &&
         a.backward.size() == b.backward.size();
}

// Blocks that brought options have no tape to know again.
bool SameBlock(const BlockInstance& a, const BlockInstance& b) {
  return a.options.empty() && b.options.empty() && a.tape == b.tape &&
         a.gradient_live_bytes.size() == b.gradient_live_bytes.size() && a.start_live_bytes.size() == b.start_live_bytes.size();
}

void Raise(int64_t to, int64_t& bytes) { bytes = std::max(bytes, to); }

void Raise(const std::vector<int64_t>& to, std::vector<int64_t>& bytes) {
  for (size_t i = 0; i < to.size(); ++i) Raise(to[i], bytes[i]);
}

void Raise(const BlockTape& known, BlockTape& tape) {
  for (size_t i = 0; i < tape.storages.size(); ++i) {
    tape.storages[i].must_save |= known.storages[i].must_save;
    tape.storages[i].held_anyway &= known.storages[i].held_anyway;
  }
  for (size_t i = 0; i < tape.ops.size(); ++i) {
    tape.ops[i].cost_seconds = known.ops[i].cost_seconds;
    tape.ops[i].replayable &= known.ops[i].replayable;
    Raise(known.ops[i].replay_workspace_bytes, tape.ops[i].replay_workspace_bytes);
  }
  for (size_t i = 0; i < tape.backward.size(); ++i) {
    Raise(known.backward[i].gradient_live_bytes, tape.backward[i].gradient_live_bytes);
    Raise(known.backward[i].start_live_bytes, tape.backward[i].start_live_bytes);
  }
}

void Raise(const BlockInstance& known, BlockInstance& block) {
  Raise(known.forward_base_bytes, block.forward_base_bytes);
  Raise(known.backward_base_bytes, block.backward_base_bytes);
  Raise(known.backward_transient_bytes, block.backward_transient_bytes);
  Raise(known.gradient_live_bytes, block.gradient_live_bytes);
  Raise(known.start_live_bytes, block.start_live_bytes);
}

}  // namespace

KnownRunKey KeyOfRun(const planner::PlanningProblem& problem, const std::vector<uint64_t>& structure_hashes,
                     const std::string& device, const std::string& torch_version) {
  StableHash structure, shapes;
  structure.Add(device);
  structure.Add(torch_version);
  for (const uint64_t hash : structure_hashes) structure.Add(hash);
  for (const BlockTape& tape : problem.tapes) {
    shapes.Add(tape.ops.size());
    shapes.Add(tape.storages.size());
    for (const planner::Storage& storage : tape.storages) {
      shapes.Add(static_cast<uint64_t>(storage.bytes));
      // Labels end in the shape and the dtype.
      shapes.Add(storage.label);
    }
  }
  return {structure.value(), shapes.value()};
}

absl::Status RaiseToKnown(const planner::PlanningProblem& known, planner::PlanningProblem& problem) {
  if (!std::equal(known.tapes.begin(), known.tapes.end(), problem.tapes.begin(), problem.tapes.end(), SameTape) ||
      !std::equal(known.blocks.begin(), known.blocks.end(), problem.blocks.begin(), problem.blocks.end(), SameBlock)) {
    return absl::FailedPreconditionError("the run that is known is of other blocks");
  }
  for (size_t i = 0; i < known.tapes.size(); ++i) Raise(known.tapes[i], problem.tapes[i]);
  for (size_t k = 0; k < known.blocks.size(); ++k) Raise(known.blocks[k], problem.blocks[k]);
  Raise(known.head_peak_bytes, problem.head_peak_bytes);
  Raise(known.optimizer_peak_bytes, problem.optimizer_peak_bytes);
  Raise(known.headroom.block_bytes, problem.headroom.block_bytes);
  Raise(known.headroom.head_bytes, problem.headroom.head_bytes);
  Raise(known.headroom.optimizer_bytes, problem.headroom.optimizer_bytes);
  return absl::OkStatus();
}

void AddToBases(int64_t bytes, planner::PlanningProblem& problem) {
  problem.head_peak_bytes += bytes;
  problem.optimizer_peak_bytes += bytes;
  for (BlockInstance& block : problem.blocks) {
    block.forward_base_bytes += bytes;
    block.backward_base_bytes += bytes;
  }
}

}  // namespace tidetape::server
