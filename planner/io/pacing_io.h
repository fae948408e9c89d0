// Between planner/pacing's structs and the messages of pacing.proto. Pure functions.
#ifndef TIDETAPE_PLANNER_IO_PACING_IO_H_
#define TIDETAPE_PLANNER_IO_PACING_IO_H_

#include "planner/pacing.h"
#include "tidetape/v1/pacing.pb.h"

namespace tidetape::planner {

// Links, units and ranks of a report; `step_seconds` is of the same step.
LinkReport LinksFromProto(const v1::CollectiveReport& report, double step_seconds);
// Into a report's links, units and ranks.
void LinksToProto(const LinkReport& links, v1::CollectiveReport* report);

// The generation is the caller's to fill.
v1::PacingPlan ToProto(const PacingPlan& plan);
PacingPlan FromProto(const v1::PacingPlan& plan);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_IO_PACING_IO_H_
