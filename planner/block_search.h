// Plans of one tape between the corners of its hull, by branch and bound.
//
// A node of the search is the tape with some storages that must be saved and some that must not. Its hull bounds all plans of the
// node from below, and the hull's corners are plans. The node whose hull lies farthest below the best plans known is split on the
// largest storage in which the two corners around that place differ.
#ifndef TIDETAPE_PLANNER_BLOCK_SEARCH_H_
#define TIDETAPE_PLANNER_BLOCK_SEARCH_H_

#include <cstdint>
#include <vector>

#include "planner/problem.h"
#include "planner/tape_plans.h"

namespace tidetape::planner {

// Plans by falling bytes and rising seconds.
struct Staircase {
  struct Step {
    int64_t bytes = 0;
    double seconds = 0;
    std::vector<int32_t> saved;  // storages, ascending
  };
  std::vector<Step> steps;
  // No plan of the tape is faster than the step that its bytes allow by more than this.
  double gap_seconds = 0;
  // No plan with fewer bytes than the last step's takes less than this; infinite where the tape has none.
  double bound_below_seconds = 0;
};

// Searches until the gap is at most `gap_seconds`, or `visits` ops have been visited (a node visits each op of the tape about a
// dozen times); takes off what was used. `root` must be of `tape`, which must be valid.
Staircase SearchBlock(const BlockTape& tape, TapePlans& root, double gap_seconds, int64_t& visits);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_BLOCK_SEARCH_H_
