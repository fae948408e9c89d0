// The door: what comes from the network is checked here, once, before anything else sees it.
//
// Every function returns OK or InvalidArgument with a message that names the job, the rank, the step and the field as far as they
// are known. No state, safe from any thread.
#ifndef TIDETAPE_SERVER_MESSAGES_VALIDATE_H_
#define TIDETAPE_SERVER_MESSAGES_VALIDATE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::server {

// Who sent a message; for error messages.
struct Sender {
  std::string job;
  int32_t rank = -1;
};

// Job and incarnation: 1 to 256 bytes, printable ASCII without spaces, so that log lines can be cut at spaces.
absl::Status ValidateHello(const v1::Hello& hello);

// Numbers are finite and not negative (costs: or negative for "not measured").
absl::Status ValidateReport(const Sender& sender, const v1::StepReport& report);

// Numbers are finite and not negative, indices point into their lists. What a tape means is the planner's business.
absl::Status ValidateTape(const Sender& sender, const v1::BlockTape& tape);

// Limits are >= -1, pins have a glob and an action that can be pinned.
absl::Status ValidateConstraints(const std::string& job, const v1::Constraints& constraints);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_MESSAGES_VALIDATE_H_
