#include "planner/step/step_memory.h"

namespace tidetape::planner {
namespace {

// Of a block while its own forward runs, beside the blocks before it.
int64_t InForward(const BlockMemory& block) { return block.saved_bytes + block.moved_bytes - block.forward_relief_bytes; }

// Of block b while its own backward runs, likewise.
int64_t InBackward(const std::vector<BlockMemory>& blocks, size_t b) {
  return blocks[b].own_peak_bytes + (b > 0 ? blocks[b - 1].moved_bytes : 0);
}

// In order of time; the optimizer comes after them.
std::vector<ScheduledPart> PartsOf(const PlanningProblem& problem) {
  if (!problem.schedule.empty()) return problem.schedule;
  const auto blocks = static_cast<int32_t>(problem.blocks.size());
  std::vector<ScheduledPart> parts;
  for (int32_t b = 0; b < blocks; ++b) parts.push_back({Phase::kForward, b});
  parts.push_back({Phase::kHead});
  for (int32_t b = blocks; b-- > 0;) parts.push_back({Phase::kBackward, b});
  return parts;
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
  if (!problem.schedule.empty()) {
    for (const IntervalPeak& interval : IntervalPeaks(problem, blocks)) {
      offer(interval.bytes, interval.place.phase, interval.place.block);
    }
    return peak;
  }
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

int64_t BaseBytes(const PlanningProblem& problem, const ScheduledPart& part) {
  return part.phase == Phase::kForward    ? problem.blocks[part.block].forward_base_bytes
         : part.phase == Phase::kBackward ? problem.blocks[part.block].backward_base_bytes
                                          : problem.head_peak_bytes;
}

std::vector<IntervalPeak> IntervalPeaks(const PlanningProblem& problem, const std::vector<BlockMemory>& blocks) {
  std::vector<IntervalPeak> intervals;
  int64_t saved = 0;
  for (const ScheduledPart& part : PartsOf(problem)) {
    int64_t bytes = BaseBytes(problem, part);
    if (part.phase == Phase::kBackward) {
      saved -= blocks[part.block].saved_bytes;
      bytes += InBackward(blocks, part.block);
    }
    bytes += saved;
    if (part.phase == Phase::kForward) {
      bytes += InForward(blocks[part.block]);
      saved += blocks[part.block].saved_bytes;
    }
    intervals.push_back({{.phase = part.phase, .block = part.block}, bytes});
  }
  intervals.push_back({{.phase = Phase::kOptimizer}, problem.optimizer_peak_bytes});
  return intervals;
}

}  // namespace tidetape::planner
