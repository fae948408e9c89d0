// Between the link's structs and the messages of proto/tidetape/v1. Tapes are planner/io's to convert.
//
// Pure functions; safe to call from any thread.
#ifndef TIDETAPE_AGENT_LINK_MESSAGE_CODEC_H_
#define TIDETAPE_AGENT_LINK_MESSAGE_CODEC_H_

#include <memory>

#include "absl/status/statusor.h"
#include "agent/link/owned_plan.h"
#include "agent/link/planner_link.h"
#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::link {

v1::StepReport ReportToMessage(const StepReport& report);

// InvalidArgument where the plan names no generation or an action that the agent does not know.
absl::StatusOr<std::shared_ptr<const OwnedPlan>> PlanFromMessage(const v1::Plan& plan);

}  // namespace tidetape::link

#endif  // TIDETAPE_AGENT_LINK_MESSAGE_CODEC_H_
