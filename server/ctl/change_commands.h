// The commands that change a job; the server writes down who did. They take the token of an operator.
//
// What an operator asks of a job is one message. A command reads it, changes its part, and puts it back; where somebody else has
// changed it meanwhile, the server refuses and the command begins again, so that no change is lost.
#ifndef TIDETAPE_SERVER_CTL_CHANGE_COMMANDS_H_
#define TIDETAPE_SERVER_CTL_CHANGE_COMMANDS_H_

#include <ostream>

#include "absl/status/status.h"
#include "server/ctl/arguments.h"

namespace tidetape::ctl {

// A limit in place of the agents' own; "own" gives it back to them.
absl::Status SetLimit(const Arguments& arguments, std::ostream& out);
// Adds a pin, or takes all away.
absl::Status PinValues(const Arguments& arguments, std::ostream& out);
// The plan in force stays.
absl::Status Freeze(const Arguments& arguments, std::ostream& out);
// The plan of an older generation comes into force and stays: --to, or the newest that differs from the one in force.
absl::Status Rollback(const Arguments& arguments, std::ostream& out);
// Everything is kept. Refused where that exceeds the limit, unless --force.
absl::Status Disable(const Arguments& arguments, std::ostream& out);
// Plans follow the job again: the end of freeze, rollback and disable.
absl::Status Resume(const Arguments& arguments, std::ostream& out);
absl::Status End(const Arguments& arguments, std::ostream& out);

}  // namespace tidetape::ctl

#endif  // TIDETAPE_SERVER_CTL_CHANGE_COMMANDS_H_
