#include "planner/step/step_memory.h"

namespace tidetape::planner {
namespace {

// Of a block while its own forward runs, beside the blocks before it.
int64_t InForward(const BlockMemory& block) { return block.saved_bytes + block.moved_bytes; }

// Of block b while its own backward runs, likewise.
int64_t InBackward(const std::vector<BlockMemory>& blocks, size_t b) {
  return blocks[b].own_peak_bytes + (b > 0 ? blocks[b - 1].moved_bytes : 0);
}

}  // namespace

BlockMemory MemoryOf(const BlockPlan& plan) {
  return {plan.saved_bytes - plan.moved_input_bytes, plan.own_peak_bytes, plan.moved_bytes};
}

StepPeak FindStepPeak(const PlanningProblem& problem, const std::vector<BlockMemory>& blocks) {
  StepPeak peak{.bytes = problem.optimizer_peak_bytes, .holder = {.phase = Phase::kOptimizer}};
  const auto offer = [&](int64_t bytes, Phase phase, int32_t block) {
    if (bytes > peak.bytes) peak = {.bytes = bytes, .holder = {.phase = phase, .block = block}};
  };
  int64_t saved = 0;
  for (const BlockMemory& block : blocks) saved += block.saved_bytes;
  offer(problem.head_peak_bytes + saved, Phase::kHead, -1);
  saved = 0;
  for (size_t b = 0; b < blocks.size(); ++b) {
    offer(problem.blocks[b].forward_base_bytes + saved + InForward(blocks[b]), Phase::kForward, static_cast<int32_t>(b));
    saved += blocks[b].saved_bytes;
  }
  saved = 0;
  for (size_t b = 0; b < blocks.size(); ++b) {
    offer(problem.blocks[b].backward_base_bytes + saved + InBackward(blocks, b), Phase::kBackward, static_cast<int32_t>(b));
    saved += blocks[b].saved_bytes;
  }
  return peak;
}

std::vector<IntervalPeak> IntervalPeaks(const PlanningProblem& problem, const std::vector<BlockMemory>& blocks) {
  std::vector<IntervalPeak> intervals;
  const auto add = [&](Phase phase, size_t block, int64_t bytes) {
    intervals.push_back({{.phase = phase, .block = static_cast<int32_t>(block)}, bytes});
  };
  int64_t saved = 0;
  for (size_t b = 0; b < blocks.size(); ++b) {
    add(Phase::kForward, b, problem.blocks[b].forward_base_bytes + saved + InForward(blocks[b]));
    saved += blocks[b].saved_bytes;
  }
  intervals.push_back({{.phase = Phase::kHead}, problem.head_peak_bytes + saved});
  for (size_t b = blocks.size(); b-- > 0;) {
    saved -= blocks[b].saved_bytes;
    add(Phase::kBackward, b, problem.blocks[b].backward_base_bytes + saved + InBackward(blocks, b));
  }
  intervals.push_back({{.phase = Phase::kOptimizer}, problem.optimizer_peak_bytes});
  return intervals;
}

}  // namespace tidetape::planner
