// The fastest plan of one tape that saves at most so many bytes: what lies between the corners of the hull.
//
// Branch and bound, best bound first. A node is a set of decisions (this storage is saved, that one is not); the hull of the tape
// under these decisions bounds all its plans, and its corners on both sides of the limit are plans. Where they differ, the largest
// storage that they do not agree on is decided next. The problem contains knapsack, so no bound on the nodes is small; the
// effort ends the search, and the bound that is left is proven all the same.
#ifndef TIDETAPE_PLANNER_TAPE_BLOCK_SEARCH_H_
#define TIDETAPE_PLANNER_TAPE_BLOCK_SEARCH_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "planner/model/plan.h"
#include "planner/model/problem.h"
#include "planner/tape/tape_plans.h"

namespace tidetape::planner {

struct FastestPlan {
  TapePlan plan;
  double bound_seconds = 0;  // no plan within the bytes is faster
};

// Ends when plan and bound are at most `gap_seconds` apart, or when the effort's visits are used up or it is stopped.
// InvalidArgument where the tape has no plan within the bytes. The tape must be valid (ValidateTape).
absl::StatusOr<FastestPlan> SearchBlock(const BlockTape& tape, int64_t saved_bytes_limit, double gap_seconds, const Effort& effort);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_TAPE_BLOCK_SEARCH_H_
