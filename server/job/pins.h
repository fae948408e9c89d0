// Pins: what people want kept or replayed, put into a planning problem.
#ifndef TIDETAPE_SERVER_JOB_PINS_H_
#define TIDETAPE_SERVER_JOB_PINS_H_

#include <google/protobuf/repeated_field.h>

#include "planner/model/problem.h"
#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::server {

// Marks the matching intermediate storages must_save or must_recompute; a later pin wins over an earlier one. A storage that the
// agent marked must_save stays so, because its content cannot be replayed. Blocks that share a tape and are pinned differently get
// tapes of their own. Globs are those of fnmatch(3); `*` crosses dots. Returns the number of storages pinned, over all blocks.
int ApplyPins(const google::protobuf::RepeatedPtrField<v1::Pin>& pins, planner::PlanningProblem& problem);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_JOB_PINS_H_
