#include "planner/step/expected_peak.h"

#include <algorithm>
#include <optional>

#include "planner/step/step_memory.h"

namespace tidetape::planner {
namespace {

// By block; null where sizes do not differ.
std::vector<const BlockTape*> SampledTapes(const PlanningProblem& problem) {
  std::vector<const BlockTape*> tapes;
  for (const BlockInstance& block : problem.blocks) {
    const BlockTape* tape = block.options.empty() ? &problem.tapes[block.tape] : nullptr;
    const bool sampled = tape != nullptr && !tape->storages.empty() && !tape->storages.front().sampled_bytes.empty();
    tapes.push_back(sampled ? tape : nullptr);
  }
  return tapes;
}

// How much more than their planned sizes the storages had in that step.
int64_t MoreBytes(const BlockTape& tape, const std::vector<int32_t>& storages, size_t step) {
  int64_t more = 0;
  for (const int32_t s : storages) {
    const Storage& storage = tape.storages[s];
    if (storage.kind == StorageKind::kIntermediate && !storage.held_anyway) more += storage.sampled_bytes[step] - storage.bytes;
  }
  return more;
}

// A saved storage is alive from the op that makes it to the last one that reads or writes it, whoever saves it or not. At each op
// the bytes of those whose last op has passed are added to what is alive without them.
int64_t ForwardReliefBytes(const BlockTape& tape, const BlockPlan& plan) {
  const size_t ops = tape.ops.size();
  if (tape.forward_slack_bytes.empty()) return 0;
  std::vector<size_t> last_op(tape.storages.size(), 0);
  for (size_t i = 0; i < ops; ++i) {
    for (const int32_t s : tape.ops[i].reads) last_op[s] = i;
    for (const int32_t s : tape.ops[i].writes) last_op[s] = i;
  }
  std::vector<int64_t> passed(ops + 1, 0);  // by op: bytes whose last op comes right before it
  int64_t all = 0;
  for (const std::vector<int32_t>* kept : {&plan.saved, &plan.moved}) {
    for (const int32_t s : *kept) {
      const Storage& storage = tape.storages[s];
      if (storage.kind != StorageKind::kIntermediate || storage.held_anyway) continue;
      passed[last_op[s] + 1] += storage.bytes;
      all += storage.bytes;
    }
  }
  int64_t beside = 0, most = 0;
  for (size_t i = 0; i < ops; ++i) {
    beside += passed[i];
    most = std::max(most, beside - tape.forward_slack_bytes[i]);
  }
  return all - most;
}

}  // namespace

PlanningProblem BasesWithoutHeadroom(const PlanningProblem& problem) {
  const auto [block_bytes, head_bytes, optimizer_bytes] = problem.headroom;
  PlanningProblem expected;
  expected.schedule = problem.schedule;
  expected.head_peak_bytes = problem.head_peak_bytes - head_bytes;
  expected.optimizer_peak_bytes = problem.optimizer_peak_bytes - optimizer_bytes;
  for (const BlockInstance& block : problem.blocks) {
    BlockInstance& bases = expected.blocks.emplace_back();
    bases.forward_base_bytes = block.forward_base_bytes - block_bytes;
    bases.backward_base_bytes = block.backward_base_bytes - block_bytes;
  }
  return expected;
}

int64_t ExpectedPeakBytes(const PlanningProblem& problem, const std::vector<BlockPlan>& blocks, int64_t step_peak_bytes) {
  const std::vector<const BlockTape*> tapes = SampledTapes(problem);
  // Steps that all tapes have, the newest last.
  std::optional<size_t> steps;
  for (const BlockTape* tape : tapes) {
    if (tape != nullptr) steps = std::min(steps.value_or(SIZE_MAX), tape->storages.front().sampled_bytes.size());
  }
  const Headroom& headroom = problem.headroom;
  const bool held_free = headroom.block_bytes > 0 || headroom.head_bytes > 0 || headroom.optimizer_bytes > 0;
  const bool forwards_known = std::any_of(problem.tapes.begin(), problem.tapes.end(),
                                          [](const BlockTape& tape) { return !tape.forward_slack_bytes.empty(); });
  if (!held_free && !forwards_known && !steps.has_value()) return step_peak_bytes;
  const PlanningProblem expected = BasesWithoutHeadroom(problem);
  std::vector<BlockMemory> planned;
  for (size_t b = 0; b < blocks.size(); ++b) {
    BlockMemory& block = planned.emplace_back(MemoryOf(blocks[b]));
    const BlockInstance& instance = problem.blocks[b];
    if (instance.options.empty()) block.forward_relief_bytes = ForwardReliefBytes(problem.tapes[instance.tape], blocks[b]);
  }
  int64_t peak = 0;
  for (size_t step = 0; step < steps.value_or(1); ++step) {
    std::vector<BlockMemory> memory = planned;
    for (size_t b = 0; b < blocks.size(); ++b) {
      BlockMemory& block = memory[b];
      if (tapes[b] == nullptr) continue;
      const size_t sample = tapes[b]->storages.front().sampled_bytes.size() - *steps + step;
      const int64_t saved = MoreBytes(*tapes[b], blocks[b].saved, sample), moved = MoreBytes(*tapes[b], blocks[b].moved, sample);
      block.saved_bytes += saved;
      block.moved_bytes += moved;
      // All of it is there when the block's backward begins.
      block.own_peak_bytes += saved + moved;
    }
    peak = std::max(peak, FindStepPeak(expected, memory).bytes);
  }
  return peak;
}

}  // namespace tidetape::planner
