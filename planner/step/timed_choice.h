// Picks one choice a block by a dynamic program over time, and bounds what any combination of the choices can reach.
//
// Seconds are rounded down to multiples of a unit, bytes are not rounded: for each sum of units the blocks so far keep the fewest
// saved bytes that reach it, and fewer bytes before a block are never worse (see step_memory.h). The least sum that keeps the limit
// bounds all combinations from below, and its picks lie above it by less than one unit a block. Sums that step_bound.h shows to
// lead to no combination that is fast enough are left out: each block adds what its choice costs above the bound's prices.
#ifndef TIDETAPE_PLANNER_STEP_TIMED_CHOICE_H_
#define TIDETAPE_PLANNER_STEP_TIMED_CHOICE_H_

#include <cstdint>
#include <vector>

#include "planner/model/problem.h"
#include "planner/step/step_bound.h"
#include "planner/step/step_choice.h"

namespace tidetape::planner {

struct TimedPicks {
  std::vector<int32_t> picks;  // by block: position in its choices; empty where no combination is faster than `most_seconds`
  double bound_seconds = 0;    // no combination that keeps the limit is faster; `most_seconds` where picks is empty
  int64_t pairs = 0;           // of a sum and a choice that were tried
};

// Looks for combinations of less than `most_seconds`, which must be above 0, on a grid of `units` steps up to there. `bound` is one
// of all mixtures of the choices under the limit. Time: pairs, at most those of all choices and units; memory: blocks x units.
TimedPicks PickByTime(const PlanningProblem& problem, const Choices& choices, int64_t limit, const StepBound& bound,
                      double most_seconds, int32_t units);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_STEP_TIMED_CHOICE_H_
