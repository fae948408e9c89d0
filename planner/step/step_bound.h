// What no plan of a step can beat.
#ifndef TIDETAPE_PLANNER_STEP_STEP_BOUND_H_
#define TIDETAPE_PLANNER_STEP_STEP_BOUND_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/model/problem.h"
#include "planner/tape/tape_plans.h"

namespace tidetape::planner {

// What a block can be at its least: bytes saved and own peak, each for itself.
struct BlockLeast {
  int64_t saved_bytes = 0;
  int64_t own_peak_bytes = 0;
};

// By block k: the most that the blocks up to and with k may save so that the step's peak can stay within the limit, given what
// every block needs at least. Nullopt where even that is too much.
std::optional<std::vector<int64_t>> PrefixLimits(const PlanningProblem& problem, const std::vector<BlockLeast>& least,
                                                 int64_t limit);

struct StepBound {
  double seconds = 0;
  // By block: where the bound is reached, and the seconds that a byte saved there is worth, which never rise from block to block.
  std::vector<int64_t> saved_bytes;
  std::vector<double> block_seconds;
  std::vector<double> byte_prices;
};

// What a way to run a block costs above the best one at the bound's price of a byte; rounding aside not negative. By duality a step
// plan that keeps the limit takes the bound's seconds and the excess of each of its blocks, at least.
double ExcessSeconds(const StepBound& bound, size_t block, int64_t saved_bytes, double seconds);

// The least seconds of any mixture of the hulls' points (by block; by falling bytes) whose saved bytes keep the prefix limits: the
// linear relaxation of the step. The limits are nested and the hulls convex, so taking bytes off where they cost the least seconds,
// limit by limit, is optimal; the last rate paid for a limit or a later one is the price of a byte. The limits come from
// PrefixLimits with each hull's least bytes, so that some mixture keeps them.
StepBound BoundStep(const std::vector<const std::vector<HullPoint>*>& hulls, const std::vector<int64_t>& prefix_limits);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_STEP_STEP_BOUND_H_
