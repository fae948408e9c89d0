// What the commands that ask a server share: a request made of the arguments, and an answer printed.
#ifndef TIDETAPE_SERVER_CTL_ASK_H_
#define TIDETAPE_SERVER_CTL_ASK_H_

#include <cstdint>
#include <ostream>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/ctl/arguments.h"
#include "server/text/units.h"

namespace tidetape::ctl {

// Fills job, limit and effort as far as the request has them.
template <typename Request>
absl::Status FillRequest(const Arguments& arguments, Request& request) {
  request.set_job(arguments.job);
  if constexpr (requires { request.mutable_effort(); }) {
    request.mutable_effort()->set_visits(arguments.effort.visits);
    request.mutable_effort()->set_gap(arguments.effort.gap_of_full_replay);
  }
  if constexpr (requires { request.set_memory_limit_bytes(int64_t{0}); }) {
    if (arguments.memory_limit.empty()) return absl::OkStatus();
    const auto limit = ParseLimit(arguments.memory_limit);
    if (!limit.ok()) return limit.status();
    request.set_memory_limit_bytes(*limit);
  }
  return absl::OkStatus();
}

// Asks, and prints the answer as JSON or with `as_text`.
template <typename Method, typename Request, typename AsText>
absl::Status Ask(const Arguments& arguments, Method method, const Request& request, std::ostream& out, AsText as_text) {
  const auto response = MakeClient(arguments).Call(method, request);
  if (!response.ok()) return response.status();
  if (arguments.output.json()) {
    out << ToJson(*response, arguments.output);
  } else {
    as_text(*response);
  }
  return absl::OkStatus();
}

}  // namespace tidetape::ctl

#endif  // TIDETAPE_SERVER_CTL_ASK_H_
