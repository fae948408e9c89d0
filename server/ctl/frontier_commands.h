// Replay time against memory: of a job's step, of one block, or of what a problem file holds.
#ifndef TIDETAPE_SERVER_CTL_FRONTIER_COMMANDS_H_
#define TIDETAPE_SERVER_CTL_FRONTIER_COMMANDS_H_

#include <ostream>

#include "absl/status/status.h"
#include "server/ctl/arguments.h"

namespace tidetape::ctl {

// Of a job's step, of one block (--block), or of a tape in a file (--file); with --within the fastest plan of one block.
absl::Status Frontier(const Arguments& arguments, std::ostream& out);
// Of the step of a job or of a file.
absl::Status StepFrontier(const Arguments& arguments, std::ostream& out);

}  // namespace tidetape::ctl

#endif  // TIDETAPE_SERVER_CTL_FRONTIER_COMMANDS_H_
