// The step under a schedule: several micro-batches are alive at once, as in pipelines, so that the blocks alive in one part of the
// step are not those that come before another block, and step_bound.h and step_choice.h do not hold.
//
// Every saved byte is alive from its block's forward until its block's backward, an interval of the schedule's parts. So each part
// limits the sum of what the blocks alive in it save, and the relaxation is a linear program whose prices, one a part, say what a
// byte alive in that part is worth. Any prices give a bound by weak duality; good ones are found by subgradient steps towards a
// level between the bound so far and what is still thought possible (Goffin and Kiwiel, "Convergence of a simple subgradient level
// method", Mathematical Programming 85, 1999).
#ifndef TIDETAPE_PLANNER_STEP_SCHEDULE_CHOICE_H_
#define TIDETAPE_PLANNER_STEP_SCHEDULE_CHOICE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/model/problem.h"
#include "planner/step/step_bound.h"
#include "planner/step/step_choice.h"

namespace tidetape::planner {

// A bound on the seconds of any mixture of the hulls' points under the limit, and the prices that prove it: of a block, the sum of
// those of the parts in which it is alive. Nullopt where what every block needs at least is too much. `hulls` and `least` by block;
// the problem has a schedule.
std::optional<StepBound> BoundSchedule(const PlanningProblem& problem, const std::vector<const std::vector<HullPoint>*>& hulls,
                                       const std::vector<BlockLeast>& least, int64_t limit);

// Picks with the least step peak that exchanging one block's choice at a time finds, or a search through all where they are few.
LeastStep FindLeastInSchedule(const PlanningProblem& problem, Choices& choices, const LearnOwnPeak& learn);

// By block: position of the pick in its choices, so that the step keeps the limit: the choices that cost the least at the bound's
// prices, made leaner until they do and then faster as long as they do, also one faster and others leaner for it; and at last,
// where few choices can be part of a better plan, the best of them. Nullopt where none was found.
std::optional<std::vector<int32_t>> PickInSchedule(const PlanningProblem& problem, Choices& choices, int64_t limit,
                                                   const StepBound& bound, const LearnOwnPeak& learn);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_STEP_SCHEDULE_CHOICE_H_
