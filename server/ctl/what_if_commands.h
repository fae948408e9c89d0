// Questions about plans that a job has not got: another limit, other ways to choose, what pins cost, the largest size that fits.
// Each asks a live job; with --file policies and prices are those of a problem file, and need no server.
#ifndef TIDETAPE_SERVER_CTL_WHAT_IF_COMMANDS_H_
#define TIDETAPE_SERVER_CTL_WHAT_IF_COMMANDS_H_

#include <ostream>

#include "absl/status/status.h"
#include "server/ctl/arguments.h"

namespace tidetape::ctl {

absl::Status Simulate(const Arguments& arguments, std::ostream& out);
absl::Status Policies(const Arguments& arguments, std::ostream& out);
absl::Status Price(const Arguments& arguments, std::ostream& out);
absl::Status Largest(const Arguments& arguments, std::ostream& out);

}  // namespace tidetape::ctl

#endif  // TIDETAPE_SERVER_CTL_WHAT_IF_COMMANDS_H_
