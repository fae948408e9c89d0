// From the borrowed structs of the C interface to owned ones, checked at the door.
//
// Each function returns InvalidArgument with a message that names the field where a pointer is missing, a number is not finite, or
// a byte count is negative. Whether a tape makes sense is the planner's to say. Pure; safe to call from any thread.
#ifndef TIDETAPE_AGENT_LINK_TAPE_CODEC_H_
#define TIDETAPE_AGENT_LINK_TAPE_CODEC_H_

#include "absl/status/statusor.h"
#include "agent/link/planner_link.h"
#include "agent/link/tt_link.h"
#include "planner/model/problem.h"

namespace tidetape::link {

absl::StatusOr<LinkOptions> DecodeOptions(const tt_link_options& options);
absl::StatusOr<planner::BlockTape> DecodeTape(const tt_block_tape& tape);
absl::StatusOr<StepReport> DecodeReport(const tt_step_report& report);

}  // namespace tidetape::link

#endif  // TIDETAPE_AGENT_LINK_TAPE_CODEC_H_
