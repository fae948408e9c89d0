// TCP sockets as the transport needs them. Addresses are numeric IPv4 or IPv6.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_SOCKET_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_SOCKET_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/transports/common/unique_fd.h"

namespace tidetape::collectives {

struct Endpoint {
  std::string address;
  uint16_t port = 0;
};

// "10.0.0.1 4711", as ranks publish it.
std::string ToText(const Endpoint& endpoint);
absl::StatusOr<Endpoint> ParseEndpoint(const std::string& text);

// A listening socket on `address`, port 0 for any free one; non-blocking, like all sockets here.
absl::StatusOr<UniqueFd> ListenOn(const Endpoint& endpoint);
absl::StatusOr<Endpoint> LocalEndpoint(int socket);

// UNAVAILABLE where nobody listens, DEADLINE_EXCEEDED where nobody answers in time.
absl::StatusOr<UniqueFd> ConnectTo(const Endpoint& endpoint, absl::Time deadline);

// Small writes leave at once; a peer whose kernel does not answer for `dead_after` is an error of the socket, whether idle or not.
absl::Status PrepareConnection(int socket, absl::Duration dead_after);

// The address from which this host reaches `remote`: what other hosts can most likely reach it by. Sends nothing.
absl::StatusOr<std::string> AddressTowards(const std::string& remote);

// Waits until poll(2) reports one of `events`; false at the deadline.
bool WaitFor(int fd, short events, absl::Time deadline);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_SOCKET_H_
