// Who may do what.
//
//             report of own job   ask of own job   ask of any job, list   change limits and pins, end jobs
//   agent            yes                yes                 no                          no
//   reader           no                 yes                 yes                         no
//   operator         yes                yes                 yes                         yes
#ifndef TIDETAPE_SERVER_AUTH_RIGHTS_H_
#define TIDETAPE_SERVER_AUTH_RIGHTS_H_

#include <string>

#include "absl/status/status.h"

namespace tidetape::server {

enum class Role { kAgent, kReader, kOperator };

// What a call asks for.
enum class Right { kReport, kAsk, kList, kChange };

// Who calls.
struct Principal {
  std::string name;
  Role role = Role::kOperator;
  // Glob over the names of the agent's own jobs; "*" for other roles.
  std::string jobs = "*";
};

// OK, or PermissionDenied with what is missing. `job` is the call's; for kList, and for kReport before the job is known, empty.
absl::Status CheckRight(const Principal& who, Right right, const std::string& job);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_AUTH_RIGHTS_H_
