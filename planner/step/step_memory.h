// The peak of a whole step from what its blocks save and what their backwards reach.
//
//   step peak = max( optimizer_peak,
//                    head_peak + sum of all saved,
//                    forward_base_k + saved_1 + ... + saved_k + moved_k    for each block k in order of execution,
//                    backward_base_k + saved_1 + ... + saved_(k-1) + own peak of k + moved_(k-1) )
//
// since every saved byte is alive from its block's forward until its block's backward. The own peak holds the block's own saved
// bytes, and its moved ones: they leave at the end of its forward and are back when the backward of the block after it begins.
//
// Where the problem has a schedule, the sums are instead over the blocks whose forward began and whose backward did not.
#ifndef TIDETAPE_PLANNER_STEP_STEP_MEMORY_H_
#define TIDETAPE_PLANNER_STEP_STEP_MEMORY_H_

#include <cstdint>
#include <vector>

#include "planner/model/plan.h"
#include "planner/model/problem.h"

namespace tidetape::planner {

struct BlockMemory {
  int64_t saved_bytes = 0;  // below 0 where inputs that the bases count are moved
  int64_t own_peak_bytes = 0;
  int64_t moved_bytes = 0;
  // How much less than all that it saves and moves its own forward's peak needs of it: what is alive there anyway, or comes later.
  int64_t forward_relief_bytes = 0;
};

struct StepPeak {
  int64_t bytes = 0;
  PeakHolder holder;  // the first that reaches it, in the order optimizer, head, forwards, backwards; under a schedule in its order
};

// One part of a step and the most bytes alive in it.
struct IntervalPeak {
  PeakHolder place;
  int64_t bytes = 0;
};

// In order of time: forwards, the head, backwards, or as the schedule says; the optimizer. `blocks` as for FindStepPeak.
std::vector<IntervalPeak> IntervalPeaks(const PlanningProblem& problem, const std::vector<BlockMemory>& blocks);

// What no plan changes of a forward, a head or a backward.
int64_t BaseBytes(const PlanningProblem& problem, const ScheduledPart& part);

BlockMemory MemoryOf(const BlockPlan& plan);

// One entry an entry of problem.blocks.
StepPeak FindStepPeak(const PlanningProblem& problem, const std::vector<BlockMemory>& blocks);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_STEP_STEP_MEMORY_H_
