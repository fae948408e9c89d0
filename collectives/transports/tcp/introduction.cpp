#include "collectives/transports/tcp/introduction.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/transports/tcp/socket.h"

namespace tidetape::collectives {
namespace {

constexpr uint32_t kMagic = 0x74747431;  // "ttt1"
// Connections that have not shown a token yet; more push out the oldest. Strangers cannot hold up more than this.
constexpr size_t kMostStrangers = 64;

struct Hello {
  uint32_t magic = kMagic;
  int32_t from = 0;
  int32_t to = 0;
  Token token = {};
};

bool SendHello(int socket, int from, int to, const Token& token) {
  Hello hello;
  hello.from = from;
  hello.to = to;
  hello.token = token;
  // It fits into any fresh socket's buffer.
  return send(socket, &hello, sizeof(hello), MSG_NOSIGNAL) == sizeof(hello);
}

bool IsFriend(const Hello& hello, int to, const Token& token) {
  return hello.magic == kMagic && hello.to == to && SameToken(hello.token, token);
}

// Reads what is there of a hello. False where the other side hung up.
bool ReadHello(int socket, Hello& hello, size_t& bytes) {
  const ssize_t n = recv(socket, reinterpret_cast<char*>(&hello) + bytes, sizeof(hello) - bytes, MSG_DONTWAIT);
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
  if (n > 0) bytes += static_cast<size_t>(n);
  return true;
}

absl::StatusOr<RemotePeer> Call(int peer, int rank, const Roster& roster, absl::Time deadline) {
  const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(roster.members[static_cast<size_t>(peer)].tcp_address);
  if (!endpoint.ok()) return endpoint.status();
  absl::StatusOr<UniqueFd> socket = ConnectTo(*endpoint, deadline);
  if (!socket.ok()) return absl::Status(socket.status().code(), absl::StrCat("rank ", peer, ": ", socket.status().message()));
  Hello hello;
  size_t bytes = 0;
  bool there = SendHello(socket->get(), rank, peer, roster.token);
  while (there && bytes < sizeof(hello)) {
    if (!WaitFor(socket->get(), POLLIN, deadline)) {
      return absl::DeadlineExceededError(
          absl::StrCat("rank ", peer, " at ", ToText(*endpoint), " did not introduce itself in time"));
    }
    there = ReadHello(socket->get(), hello, bytes);
  }
  if (!there || !IsFriend(hello, rank, roster.token) || hello.from != peer) {
    return absl::UnavailableError(absl::StrCat("rank ", peer, " at ", ToText(*endpoint),
                                               " hung up: it has died, or another group's process answers at its address"));
  }
  return RemotePeer{peer, *std::move(socket)};
}

// Accepts until all of `missing` have come.
class Reception {
 public:
  Reception(int listener, int rank, const Token& token, std::vector<int> missing)
      : listener_(listener), rank_(rank), token_(token), missing_(std::move(missing)) {}

  absl::StatusOr<std::vector<RemotePeer>> Run(absl::Time deadline) {
    while (!missing_.empty()) {
      std::vector<pollfd> waiting = {{listener_, POLLIN, 0}};
      for (const Stranger& stranger : strangers_) waiting.push_back({stranger.socket.get(), POLLIN, 0});
      const int64_t left = absl::ToInt64Milliseconds(absl::Ceil(deadline - absl::Now(), absl::Milliseconds(1)));
      const int ready = poll(waiting.data(), waiting.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)));
      if (ready <= 0 && absl::Now() >= deadline) {
        return absl::DeadlineExceededError(absl::StrCat("rank ", missing_.front(), " did not connect to rank ", rank_, " in time"));
      }
      if (ready <= 0) continue;
      // From the back, so that positions stay right as strangers go.
      for (size_t i = strangers_.size(); i-- > 0;) {
        if (waiting[i + 1].revents != 0 && !Listen(strangers_[i])) strangers_.erase(strangers_.begin() + static_cast<int64_t>(i));
      }
      if (waiting[0].revents != 0) Accept();
    }
    return std::move(friends_);
  }

 private:
  struct Stranger {
    UniqueFd socket;
    Hello hello;
    size_t bytes = 0;
  };

  void Accept() {
    UniqueFd socket(accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return;
    if (strangers_.size() == kMostStrangers) strangers_.pop_front();
    strangers_.push_back({std::move(socket), {}, 0});
  }

  // False where the stranger is done with: gone, turned away, or a friend now.
  bool Listen(Stranger& stranger) {
    if (!ReadHello(stranger.socket.get(), stranger.hello, stranger.bytes)) return false;
    if (stranger.bytes < sizeof(Hello)) return true;
    const auto found = std::find(missing_.begin(), missing_.end(), stranger.hello.from);
    if (!IsFriend(stranger.hello, rank_, token_) || found == missing_.end()) return false;
    if (!SendHello(stranger.socket.get(), rank_, *found, token_)) return false;
    friends_.push_back({*found, std::move(stranger.socket)});
    missing_.erase(found);
    return false;
  }

  const int listener_;
  const int rank_;
  const Token& token_;
  std::vector<int> missing_;
  std::deque<Stranger> strangers_;
  std::vector<RemotePeer> friends_;
};

}  // namespace

absl::StatusOr<std::vector<RemotePeer>> ConnectAll(int listener, int rank, const Roster& roster, absl::Span<const int> peers,
                                                   absl::Time deadline) {
  std::vector<RemotePeer> connected;
  std::vector<int> higher;
  for (int peer : peers) {
    if (peer > rank) {
      higher.push_back(peer);
      continue;
    }
    absl::StatusOr<RemotePeer> called = Call(peer, rank, roster, deadline);
    if (!called.ok()) return called.status();
    connected.push_back(*std::move(called));
  }
  absl::StatusOr<std::vector<RemotePeer>> accepted = Reception(listener, rank, roster.token, std::move(higher)).Run(deadline);
  if (!accepted.ok()) return accepted.status();
  for (RemotePeer& peer : *accepted) connected.push_back(std::move(peer));
  return connected;
}

}  // namespace tidetape::collectives
