// From the planner's plan to the C interface's.
#ifndef TIDETAPE_AGENT_LINK_STEP_PLAN_CODEC_H_
#define TIDETAPE_AGENT_LINK_STEP_PLAN_CODEC_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/link/owned_plan.h"
#include "planner/model/problem.h"
#include "planner/planner.h"

namespace tidetape::link {

// What the planner does not know of its plan.
struct PlanHeading {
  int64_t generation = 0;
  int64_t memory_limit_bytes = 0;  // as agents say it: -1 keeps everything
  std::string reason;
};

// `structure_hashes` has one entry a block of the problem. Pure; safe to call from any thread.
std::shared_ptr<const OwnedPlan> MakeOwnedPlan(const planner::PlanningProblem& problem,
                                               const std::vector<uint64_t>& structure_hashes, const planner::StepPlan& plan,
                                               const PlanHeading& heading);

}  // namespace tidetape::link

#endif  // TIDETAPE_AGENT_LINK_STEP_PLAN_CODEC_H_
