// Why a plan keeps or replays each value of a block, and what the other choice would cost.
//
// Pure functions; safe to call from any thread. Time: one evaluation of the block's plan a value.
#ifndef TIDETAPE_SERVER_QUESTIONS_PLAN_EXPLANATION_H_
#define TIDETAPE_SERVER_QUESTIONS_PLAN_EXPLANATION_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/model/problem.h"
#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::server {

// One entry an intermediate storage of the tape and one a block input that moves, in order. `saved` are the storages that the plan
// keeps on the device, `moved` those that it moves to host memory, both ascending. The rest of the step does not matter: blocks
// meet only in their sums of bytes.
absl::StatusOr<std::vector<v1::ExplainedValue>> ExplainBlock(const planner::BlockTape& tape, const planner::BlockInstance& instance,
                                                             const std::vector<int32_t>& saved, const std::vector<int32_t>& moved);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_QUESTIONS_PLAN_EXPLANATION_H_
