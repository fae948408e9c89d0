// What step peak training is expected to measure under a plan.
//
// Less than the peak that keeps the limit: bytes that are held free for steps that need more do not count, nor what a block saves
// after its forward's peak or has alive there anyway. And where sizes differ from step to step, the plan is looked at in each step
// that the tapes have sizes of: the largest peak is expected, not that of all largest sizes at once.
#ifndef TIDETAPE_PLANNER_STEP_EXPECTED_PEAK_H_
#define TIDETAPE_PLANNER_STEP_EXPECTED_PEAK_H_

#include <cstdint>
#include <vector>

#include "planner/model/plan.h"
#include "planner/model/problem.h"

namespace tidetape::planner {

// The bases of the problem's blocks, its head and its optimizer as they are expected, without its tapes.
PlanningProblem BasesWithoutHeadroom(const PlanningProblem& problem);

// `blocks`: one plan an entry of problem.blocks, with its bytes; `step_peak_bytes` is FindStepPeak's of them, which is returned
// where nothing else is known.
int64_t ExpectedPeakBytes(const PlanningProblem& problem, const std::vector<BlockPlan>& blocks, int64_t step_peak_bytes);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_STEP_EXPECTED_PEAK_H_
