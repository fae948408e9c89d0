// The server's log: one line an event on stderr, `key=value` pairs last (job, rank, generation).
//
// Use spdlog's own functions: `spdlog::info("plan committed: {} job={} generation={}", reason, job, generation)`. Job names are
// free of spaces and control characters (see validate.h), so the pairs can be cut at spaces.
#ifndef TIDETAPE_SERVER_COMMON_LOG_H_
#define TIDETAPE_SERVER_COMMON_LOG_H_

#include <spdlog/spdlog.h>

#include <string>

#include "absl/status/status.h"

namespace tidetape::server {

// Sends the default logger to stderr and sets its level: trace, debug, info, warning, error, critical or off.
absl::Status SetUpLog(const std::string& level);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_COMMON_LOG_H_
