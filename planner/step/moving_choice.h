// Picks one choice a block under a limit on the step's peak and one on the host's bytes.
//
// Blocks meet in three things: the sum of the bytes saved so far, the sum of those moved so far, and what the block just before has
// moved (step_memory.h). Less of each is never worse, so a dynamic program over blocks with states (saved, moved, moved by the last
// block, cost so far) is exact. States are kept in cells of saved and moved bytes, in each the cheapest and the one whose last
// block moved least; bytes are never rounded, so that every result keeps the limits. Where the cells are single bytes and no two
// states of a cell are lost, the result is optimal; beyond, moving_bound.h says how far it can be from the optimum.
#ifndef TIDETAPE_PLANNER_STEP_MOVING_CHOICE_H_
#define TIDETAPE_PLANNER_STEP_MOVING_CHOICE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/model/problem.h"
#include "planner/step/step_memory.h"

namespace tidetape::planner {

// One way to run one block.
struct MovingChoice {
  BlockMemory memory;
  double seconds = 0;  // replay and moves
  int32_t way = 0;     // the caller's
  int32_t set = 0;     // likewise
};

// Drops the choices that another one beats or equals in everything that counts: saved, moved and both together, own peak, seconds.
void KeepParetoChoices(std::vector<MovingChoice>& choices);

// By block: position of the pick in its choices. The fastest whose step peak is at most `limit`; nullopt where none was found.
std::optional<std::vector<int32_t>> PickFastest(const PlanningProblem& problem,
                                                const std::vector<std::vector<MovingChoice>>& choices, int64_t limit);
// With the least step peak that was found, and of those the fastest. Nullopt where the host has no room for any.
std::optional<std::vector<int32_t>> PickLeanest(const PlanningProblem& problem,
                                                const std::vector<std::vector<MovingChoice>>& choices);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_STEP_MOVING_CHOICE_H_
