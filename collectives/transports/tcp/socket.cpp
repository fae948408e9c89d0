#include "collectives/transports/tcp/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace tidetape::collectives {
namespace {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

absl::StatusOr<SocketAddress> Resolve(const Endpoint& endpoint) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(endpoint.address.c_str(), absl::StrCat(endpoint.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", endpoint.address, "\" is no numeric IPv4 or IPv6 address: ", gai_strerror(error)));
  }
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

absl::StatusOr<UniqueFd> Open(const SocketAddress& address, int type) {
  UniqueFd socket(::socket(address.storage.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return absl::UnavailableError(absl::StrCat("cannot make a socket: ", std::strerror(errno)));
  return socket;
}

absl::Status SetOption(int socket, int level, int name, int value) {
  if (setsockopt(socket, level, name, &value, sizeof(value)) == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot set socket option ", level, "/", name, ": ", std::strerror(errno)));
}

}  // namespace

std::string ToText(const Endpoint& endpoint) { return absl::StrCat(endpoint.address, " ", endpoint.port); }

absl::StatusOr<Endpoint> ParseEndpoint(const std::string& text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(' ', 1));
  uint32_t port = 0;
  if (!absl::SimpleAtoi(parts.second, &port) || port == 0 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is no address and port"));
  }
  return Endpoint{parts.first, static_cast<uint16_t>(port)};
}

absl::StatusOr<UniqueFd> ListenOn(const Endpoint& endpoint) {
  absl::StatusOr<SocketAddress> address = Resolve(endpoint);
  if (!address.ok()) return address.status();
  absl::StatusOr<UniqueFd> socket = Open(*address, SOCK_STREAM);
  if (!socket.ok()) return socket.status();
  if (bind(socket->get(), address->get(), address->length) != 0 || listen(socket->get(), SOMAXCONN) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", endpoint.address, ": ", std::strerror(errno),
                                               "; it must be an address of this host that the other hosts reach"));
  }
  return socket;
}

absl::StatusOr<Endpoint> LocalEndpoint(int socket) {
  sockaddr_storage storage = {};
  socklen_t length = sizeof(storage);
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  if (getsockname(socket, address, &length) != 0 ||
      getnameinfo(address, length, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return absl::UnavailableError("cannot read a socket's address");
  }
  uint32_t number = 0;
  if (!absl::SimpleAtoi(port, &number)) return absl::InternalError("a port is no number");
  return Endpoint{host, static_cast<uint16_t>(number)};
}

absl::StatusOr<UniqueFd> ConnectTo(const Endpoint& endpoint, absl::Time deadline) {
  absl::StatusOr<SocketAddress> address = Resolve(endpoint);
  if (!address.ok()) return address.status();
  absl::StatusOr<UniqueFd> socket = Open(*address, SOCK_STREAM);
  if (!socket.ok()) return socket.status();
  int error = 0;
  if (connect(socket->get(), address->get(), address->length) != 0) error = errno;
  if (error == EINPROGRESS || error == EINTR) {
    if (!WaitFor(socket->get(), POLLOUT, deadline)) {
      return absl::DeadlineExceededError(absl::StrCat("nobody answers at ", ToText(endpoint)));
    }
    socklen_t length = sizeof(error);
    getsockopt(socket->get(), SOL_SOCKET, SO_ERROR, &error, &length);
  }
  if (error != 0) return absl::UnavailableError(absl::StrCat("cannot connect to ", ToText(endpoint), ": ", std::strerror(error)));
  return socket;
}

absl::Status PrepareConnection(int socket, absl::Duration dead_after) {
  const int milliseconds = static_cast<int>(absl::ToInt64Milliseconds(dead_after));
  const int seconds = std::max(1, milliseconds / 1000);
  // Probes on an idle connection: three within the time. Unacknowledged bytes: TCP_USER_TIMEOUT, RFC 5482.
  const int interval = std::max(1, seconds / 3);
  for (const auto& [level, name, value] :
       std::initializer_list<std::array<int, 3>>{{IPPROTO_TCP, TCP_NODELAY, 1},
                                                 {SOL_SOCKET, SO_KEEPALIVE, 1},
                                                 {IPPROTO_TCP, TCP_KEEPIDLE, interval},
                                                 {IPPROTO_TCP, TCP_KEEPINTVL, interval},
                                                 {IPPROTO_TCP, TCP_KEEPCNT, 2},
                                                 {IPPROTO_TCP, TCP_USER_TIMEOUT, milliseconds}}) {
    if (absl::Status status = SetOption(socket, level, name, value); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> AddressTowards(const std::string& remote) {
  absl::StatusOr<SocketAddress> address = Resolve({remote, 9});
  if (!address.ok()) return address.status();
  absl::StatusOr<UniqueFd> socket = Open(*address, SOCK_DGRAM);
  if (!socket.ok()) return socket.status();
  if (connect(socket->get(), address->get(), address->length) != 0) {
    return absl::UnavailableError(absl::StrCat("no route to ", remote, ": ", std::strerror(errno)));
  }
  absl::StatusOr<Endpoint> local = LocalEndpoint(socket->get());
  if (!local.ok()) return local.status();
  return local->address;
}

bool WaitFor(int fd, short events, absl::Time deadline) {
  while (true) {
    const int64_t left = absl::ToInt64Milliseconds(absl::Ceil(deadline - absl::Now(), absl::Milliseconds(1)));
    pollfd waiting = {fd, events, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (ready == 0 && absl::Now() >= deadline) return false;
  }
}

}  // namespace tidetape::collectives
