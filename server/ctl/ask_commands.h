// The commands that ask a server and change nothing. Each is one call, and prints its answer.
#ifndef TIDETAPE_SERVER_CTL_ASK_COMMANDS_H_
#define TIDETAPE_SERVER_CTL_ASK_COMMANDS_H_

#include <ostream>

#include "absl/status/status.h"
#include "server/ctl/arguments.h"

namespace tidetape::ctl {

absl::Status Jobs(const Arguments& arguments, std::ostream& out);
absl::Status ShowJob(const Arguments& arguments, std::ostream& out);
absl::Status Plan(const Arguments& arguments, std::ostream& out);
absl::Status Plans(const Arguments& arguments, std::ostream& out);
absl::Status Problem(const Arguments& arguments, std::ostream& out);
absl::Status Memory(const Arguments& arguments, std::ostream& out);
absl::Status Explain(const Arguments& arguments, std::ostream& out);

// Prints what comes until the time to watch is over.
absl::Status Watch(const Arguments& arguments, std::ostream& out);

// The names of all jobs, one a line, for completion: nothing, and no error, where the server does not answer at once.
absl::Status JobNames(const Arguments& arguments, std::ostream& out);

}  // namespace tidetape::ctl

#endif  // TIDETAPE_SERVER_CTL_ASK_COMMANDS_H_
