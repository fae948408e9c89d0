// Between the planner's structs and the messages of a job, where planner/io has no word for them.
//
// Pure functions; safe to call from any thread.
#ifndef TIDETAPE_SERVER_MESSAGES_PLAN_MESSAGE_H_
#define TIDETAPE_SERVER_MESSAGES_PLAN_MESSAGE_H_

#include <cstdint>
#include <vector>

#include "planner/job/measurement.h"
#include "planner/model/problem.h"
#include "planner/planner.h"
#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::server {

planner::MemoryProfile ProfileFromMessage(const v1::MemoryProfile& profile);
planner::TapeCosts CostsFromMessage(const v1::TapeCosts& costs);
v1::TapeCosts CostsToMessage(const planner::TapeCosts& costs);

// The plan as agents and people read it, with its etag. Job, incarnation, generation, reason and time are the caller's to fill.
// `structure_hashes` has one entry a block.
v1::Plan PlanToMessage(const planner::PlanningProblem& problem, const std::vector<uint64_t>& structure_hashes,
                       const planner::StepPlan& plan);

// What a policy must know of a committed plan to watch over it: the limit in the planner's terms, what each block saves, and the
// prediction.
planner::StepPlan PlanFromMessage(const v1::Plan& plan);

// Of the plan's blocks, in order of execution.
std::vector<uint64_t> StructureHashes(const v1::Plan& plan);

// The agents' way to say a limit (-1: keep everything) of PlanningProblem::memory_limit_bytes.
int64_t LimitToMessage(int64_t planner_limit_bytes);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_MESSAGES_PLAN_MESSAGE_H_
