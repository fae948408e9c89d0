// What a command line of tidetapectl says.
#ifndef TIDETAPE_SERVER_CTL_ARGUMENTS_H_
#define TIDETAPE_SERVER_CTL_ARGUMENTS_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "net/client_security.h"
#include "planner/planner.h"
#include "server/ctl/client.h"
#include "server/ctl/output.h"
#include "server/ctl/simulate_collectives.h"

namespace tidetape::ctl {

// Where the server is and how to prove who one is; what a context holds. Empty: not said.
struct Connection {
  std::string server;
  net::ClientSecurity security;
};

// Fields of other commands than the one that runs are unused.
struct Arguments {
  Connection connection;
  net::ClientCredentials credentials;  // what the files of `connection` hold
  double timeout_seconds = 10;
  std::string context;
  OutputFormat output;

  bool watch = false;
  double every_seconds = 2;
  double for_seconds = 0;  // 0: until interrupted

  std::string job;
  std::string other_job;
  std::string file;
  std::string svg;
  std::string name;
  std::optional<int32_t> block;
  std::string memory_limit;
  planner::Effort effort;
  double deadline_seconds = 0;  // 0: the effort's visits alone end a search
  std::string within;
  std::vector<std::string> saved;
  std::vector<std::string> replayed;
  std::string additional_base = "0";
  std::optional<int64_t> generation;
  std::string block_glob;
  std::string value_glob;
  bool save = false;
  bool replay = false;
  bool clear = false;
  bool force = false;
  std::string axis;
  SimulateCollectivesArguments collectives;
};

// A command prints to `out`, and where it fails nothing, or what it has all the same.
using Command = absl::Status (*)(const Arguments& arguments, std::ostream& out);

inline Client MakeClient(const Arguments& arguments) {
  return Client(arguments.connection.server, absl::Seconds(arguments.timeout_seconds), arguments.credentials);
}

// What a search may take: all that the deadline leaves, where there is one, or else what a job's own plans get at least.
inline planner::Effort EffortOf(const Arguments& arguments) {
  planner::Effort effort = arguments.effort;
  if (arguments.deadline_seconds <= 0) {
    effort.visits = std::max(effort.visits, planner::kPlanVisits);
    return effort;
  }
  if (effort.visits == 0) effort.visits = std::numeric_limits<int64_t>::max();
  effort.stop = [end = absl::Now() + absl::Seconds(arguments.deadline_seconds)] { return absl::Now() >= end; };
  return effort;
}

// How long `watch` and -w go on.
inline absl::Duration WatchTime(const Arguments& arguments) {
  return arguments.for_seconds > 0 ? absl::Seconds(arguments.for_seconds) : absl::InfiniteDuration();
}

}  // namespace tidetape::ctl

#endif  // TIDETAPE_SERVER_CTL_ARGUMENTS_H_
