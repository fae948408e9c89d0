#include "collectives/transports/shm/introduction.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace tidetape::collectives {
namespace {

constexpr uint32_t kMagic = 0x74746d31;  // "ttm1"
constexpr int kMostDescriptors = 3;
// How long a stranger that says nothing is listened to.
constexpr absl::Duration kPatience = absl::Seconds(2);

struct Message {
  uint32_t magic = kMagic;
  int32_t rank = 0;
  Token token = {};
  int32_t status_code = 0;
  int32_t descriptors = 0;
  char status_text[464] = {};
};

absl::Status SystemError(absl::string_view what) { return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno))); }

// Waits until `fd` can be read.
bool WaitReadable(int fd, absl::Time deadline) {
  while (true) {
    const int64_t left = std::max<int64_t>(0, absl::ToInt64Milliseconds(absl::Ceil(deadline - absl::Now(), absl::Milliseconds(1))));
    pollfd waiting = {fd, POLLIN, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (ready > 0) return true;
    if (ready == 0 && absl::Now() >= deadline) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool RunsAsThisUser(int socket) {
  ucred other = {};
  socklen_t bytes = sizeof(other);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &bytes) == 0 && other.uid == geteuid();
}

absl::Status Send(int socket, const Introduction& self) {
  Message message;
  message.rank = self.rank;
  message.token = self.token;
  message.status_code = static_cast<int32_t>(self.status.code());
  const absl::string_view text = self.status.message();
  std::copy_n(text.data(), std::min(text.size(), sizeof(message.status_text) - 1), message.status_text);
  int descriptors[kMostDescriptors];
  if (self.status.ok()) {
    descriptors[message.descriptors++] = self.memory;
    descriptors[message.descriptors++] = self.pidfd;
    if (self.shared_region >= 0) descriptors[message.descriptors++] = self.shared_region;
  }
  iovec data = {&message, sizeof(message)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(descriptors))] = {};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (const size_t bytes = sizeof(int) * static_cast<size_t>(message.descriptors); bytes > 0) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(rights), descriptors, bytes);
  }
  return sendmsg(socket, &header, MSG_NOSIGNAL) == sizeof(message) ? absl::OkStatus() : SystemError("cannot send an introduction");
}

// What the other side says; nothing where it is a stranger or hangs up.
std::optional<Neighbour> Receive(UniqueFd connection, const Token& token, absl::Time deadline) {
  if (!RunsAsThisUser(connection.get()) || !WaitReadable(connection.get(), deadline)) return std::nullopt;
  Message message;
  iovec data = {&message, sizeof(message)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostDescriptors)] = {};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  const ssize_t bytes = recvmsg(connection.get(), &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  // Owned before anything is judged, so that what a stranger sends is closed.
  UniqueFd descriptors[kMostDescriptors];
  int count = 0;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); bytes >= 0 && part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; i < (part->cmsg_len - CMSG_LEN(0)) / sizeof(int) && count < kMostDescriptors; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      descriptors[count++] = UniqueFd(fd);
    }
  }
  if (bytes != sizeof(message) || message.magic != kMagic || !SameToken(message.token, token) || count != message.descriptors) {
    return std::nullopt;
  }
  message.status_text[sizeof(message.status_text) - 1] = '\0';
  Neighbour neighbour;
  neighbour.rank = message.rank;
  neighbour.status = absl::Status(static_cast<absl::StatusCode>(message.status_code), message.status_text);
  neighbour.memory = std::move(descriptors[0]);
  neighbour.pidfd = std::move(descriptors[1]);
  neighbour.shared_region = std::move(descriptors[2]);
  neighbour.connection = std::move(connection);
  if (neighbour.status.ok() && !neighbour.pidfd) return std::nullopt;
  return neighbour;
}

absl::StatusOr<Neighbour> Call(int rank, const std::string& address, const Introduction& self, absl::Time deadline) {
  std::string name;
  sockaddr_un where = {};
  where.sun_family = AF_UNIX;
  if (!absl::CUnescape(address, &name) || name.empty() || name.size() > sizeof(where.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " published no Unix socket"));
  }
  std::copy(name.begin(), name.end(), where.sun_path);
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  if (!socket || connect(socket.get(), reinterpret_cast<const sockaddr*>(&where), length) != 0) {
    return SystemError(absl::StrCat("cannot connect to rank ", rank, " on this host"));
  }
  if (!RunsAsThisUser(socket.get())) {
    return absl::PermissionDeniedError(absl::StrCat("the process that calls itself rank ", rank, " runs as another user"));
  }
  if (absl::Status status = Send(socket.get(), self); !status.ok()) return status;
  std::optional<Neighbour> neighbour = Receive(std::move(socket), self.token, deadline);
  if (!neighbour || neighbour->rank != rank) {
    if (absl::Now() >= deadline)
      return absl::DeadlineExceededError(absl::StrCat("rank ", rank, " did not introduce itself in time"));
    return absl::UnavailableError(
        absl::StrCat("rank ", rank, " hung up: it has died, or another group's process answers at its address"));
  }
  return *std::move(neighbour);
}

}  // namespace

absl::StatusOr<LocalListener> LocalListener::Open() {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un where = {};
  where.sun_family = AF_UNIX;
  // Bound with no name at all, the kernel picks a free abstract one.
  if (!socket || bind(socket.get(), reinterpret_cast<const sockaddr*>(&where), sizeof(sa_family_t)) != 0 ||
      listen(socket.get(), SOMAXCONN) != 0) {
    return SystemError("cannot listen on a Unix socket");
  }
  socklen_t length = sizeof(where);
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&where), &length) != 0)
    return SystemError("cannot read a Unix socket's name");
  const absl::string_view name(where.sun_path, length - offsetof(sockaddr_un, sun_path));
  return LocalListener(std::move(socket), absl::CEscape(name));
}

absl::StatusOr<std::vector<Neighbour>> IntroduceAll(const LocalListener& listener, const Introduction& self, const Roster& roster,
                                                    absl::Span<const int> local_ranks, absl::Time deadline) {
  std::vector<Neighbour> neighbours;
  std::vector<int> missing;
  for (int rank : local_ranks) {
    if (rank > self.rank) missing.push_back(rank);
    if (rank >= self.rank) continue;
    absl::StatusOr<Neighbour> neighbour = Call(rank, roster.members[static_cast<size_t>(rank)].shm_address, self, deadline);
    if (!neighbour.ok()) return neighbour.status();
    neighbours.push_back(*std::move(neighbour));
  }
  while (!missing.empty()) {
    if (!WaitReadable(listener.fd(), deadline)) {
      return absl::DeadlineExceededError(
          absl::StrCat("rank ", missing.front(), " did not connect to rank ", self.rank, " in time"));
    }
    UniqueFd connection(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection) continue;
    std::optional<Neighbour> neighbour = Receive(std::move(connection), self.token, std::min(deadline, absl::Now() + kPatience));
    if (!neighbour) continue;
    const auto found = std::find(missing.begin(), missing.end(), neighbour->rank);
    if (found == missing.end()) continue;
    missing.erase(found);
    if (absl::Status status = Send(neighbour->connection.get(), self); !status.ok()) return status;
    neighbours.push_back(*std::move(neighbour));
  }
  for (const Neighbour& neighbour : neighbours) {
    if (neighbour.status.ok()) continue;
    return absl::Status(neighbour.status.code(),
                        absl::StrCat("rank ", neighbour.rank, " cannot take part: ", neighbour.status.message()));
  }
  return neighbours;
}

}  // namespace tidetape::collectives
