// Step plans that also move values to the host: for each block one of the given plans, and a set of what it saves to move instead.
//
// A moved value is saved as far as replay and the block's own backward go, so that a set of it changes nothing in a block's plan
// but where the bytes are in between and what their way costs.
#ifndef TIDETAPE_PLANNER_STEP_STEP_MOVES_H_
#define TIDETAPE_PLANNER_STEP_STEP_MOVES_H_

#include <cstdint>
#include <vector>

#include "planner/model/plan.h"
#include "planner/model/problem.h"
#include "planner/step/movable.h"

namespace tidetape::planner {

// The plan of a block that keeps what `kept` saves, with the set moved instead of saved. `host_bytes_per_second` is above 0.
BlockPlan MoveSet(BlockPlan kept, const MovedSet& set, double host_bytes_per_second);

// `ways` by block: plans that move nothing. One plan a block, the fastest together whose step peak is at most `limit`; empty where
// none was found. The problem is one of MayMove() (moving_bound.h).
std::vector<BlockPlan> FastestWithMoves(const PlanningProblem& problem, const std::vector<std::vector<BlockPlan>>& ways,
                                        int64_t limit);

// The same with the least step peak that was found.
std::vector<BlockPlan> LeanestWithMoves(const PlanningProblem& problem, const std::vector<std::vector<BlockPlan>>& ways);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_STEP_STEP_MOVES_H_
