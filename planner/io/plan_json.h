// The JSON that `tidetapectl solve` and `tidetapectl frontier` print.
//
// Numbers are JSON numbers (proto3 JSON would quote 64-bit ones). An infinite gap ratio, which JSON cannot say, is null.
#ifndef TIDETAPE_PLANNER_IO_PLAN_JSON_H_
#define TIDETAPE_PLANNER_IO_PLAN_JSON_H_

#include <string>
#include <vector>

#include "planner/model/plan.h"

namespace tidetape::planner {

// {"blocks": [{"saved", "replayed", "moved", "saved_bytes", "replay_seconds", "own_peak_bytes"}, ...], "step_peak_bytes",
// "replay_seconds", "lower_bound_seconds", "gap_ratio", "feasible"}; a block that brought options has "option", too.
std::string StepPlanJson(const StepPlan& plan);

// [{"saved_bytes", "replay_seconds", "saved"}, ...]
std::string BlockFrontierJson(const std::vector<FrontierPoint>& points);

// [{"step_peak_bytes", "replay_seconds"}, ...]
std::string StepFrontierJson(const std::vector<FrontierPoint>& points);

// {"saved_bytes", "replay_seconds", "saved", "lower_bound_seconds"}
std::string BoundedPointJson(const BoundedPoint& bounded);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_IO_PLAN_JSON_H_
