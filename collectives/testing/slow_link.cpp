#include "collectives/testing/slow_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "collectives/transports/tcp/steady_time.h"

namespace tidetape::collectives {
namespace {

// What the kernel holds in front of the link beside the queue. Little, but several of the loopback interface's segments of 64 KB:
// with less room than that TCP waits for its window to open, probing ever more seldom.
constexpr int kSocketBuffer = 256 << 10;

void Prepare(int socket) {
  const int one = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &kSocketBuffer, sizeof(kSocketBuffer));
}

bool HasMore(int socket) {
  int bytes = 0;
  return ioctl(socket, FIONREAD, &bytes) == 0 && bytes > 0;
}

}  // namespace

// Bytes on their way.
struct SlowLink::Parcel {
  absl::Time arrival;
  std::string bytes;
  size_t written = 0;
};

// One direction of a connection.
struct SlowLink::Stream {
  std::shared_ptr<UniqueFd> from;
  std::shared_ptr<UniqueFd> to;
  int direction = 0;
  std::deque<Parcel> parcels;
  bool ended = false;     // nothing more will be read
  bool finished = false;  // and all is passed on
  bool wants_read = true;
  bool wants_write = false;
};

absl::StatusOr<std::unique_ptr<SlowLink>> SlowLink::Start(const Endpoint& target, const LinkOptions& options) {
  absl::StatusOr<UniqueFd> listener = ListenOn({target.address, 0});
  if (!listener.ok()) return listener.status();
  // Inherited by what is accepted, and early enough to bound the window.
  Prepare(listener->get());
  absl::StatusOr<Endpoint> endpoint = LocalEndpoint(listener->get());
  if (!endpoint.ok()) return endpoint.status();
  UniqueFd stop(eventfd(0, EFD_CLOEXEC));
  UniqueFd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!stop || !timer) return absl::ResourceExhaustedError(absl::StrCat("cannot make descriptors: ", std::strerror(errno)));
  std::unique_ptr<SlowLink> link(
      new SlowLink(*std::move(listener), std::move(stop), std::move(timer), *std::move(endpoint), target, options));
  link->thread_ = std::thread([raw = link.get()] { raw->Run(); });
  return link;
}

SlowLink::SlowLink(UniqueFd listener, UniqueFd stop, UniqueFd timer, Endpoint endpoint, Endpoint target, const LinkOptions& options)
    : listener_(std::move(listener)),
      stop_(std::move(stop)),
      timer_(std::move(timer)),
      endpoint_(std::move(endpoint)),
      target_(std::move(target)),
      // Small enough for the rate to be smooth within the queue.
      segment_bytes_(std::clamp<uint64_t>(options.queue_bytes / 8, 1, 16 << 10)),
      links_{LinkModel(options), LinkModel(options)} {}

SlowLink::~SlowLink() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void SlowLink::Accept() {
  UniqueFd caller(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!caller) return;
  absl::StatusOr<UniqueFd> callee = ConnectTo(target_, absl::Now() + absl::Seconds(5));
  if (!callee.ok()) return;
  Prepare(caller.get());
  Prepare(callee->get());
  auto near = std::make_shared<UniqueFd>(std::move(caller));
  auto far = std::make_shared<UniqueFd>(*std::move(callee));
  streams_.push_back({.from = near, .to = far, .direction = 0});
  streams_.push_back({.from = far, .to = near, .direction = 1});
}

void SlowLink::Read(Stream& stream, absl::Time now) {
  LinkModel& link = links_[stream.direction];
  stream.wants_read = false;
  while (!stream.ended) {
    const uint64_t room = std::min(segment_bytes_, link.Room(now));
    if (room == 0) {
      if (HasMore(stream.from->get())) link.Overrun(now);
      return;
    }
    std::string bytes(room, '\0');
    const ssize_t n = recv(stream.from->get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      stream.wants_read = true;
      return;
    }
    if (n <= 0) {
      stream.ended = true;
      return;
    }
    bytes.resize(static_cast<size_t>(n));
    bytes_.fetch_add(static_cast<uint64_t>(n), std::memory_order_relaxed);
    const absl::Time arrival = link.Enter(static_cast<uint64_t>(n), now);
    stream.parcels.push_back({arrival, std::move(bytes)});
  }
}

void SlowLink::Write(Stream& stream, absl::Time now) {
  stream.wants_write = false;
  while (!stream.parcels.empty() && stream.parcels.front().arrival <= now) {
    Parcel& parcel = stream.parcels.front();
    const ssize_t n = send(stream.to->get(), parcel.bytes.data() + parcel.written, parcel.bytes.size() - parcel.written,
                           MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      stream.wants_write = true;
      return;
    }
    if (n < 0) {
      // Nobody is there to read it.
      stream.parcels.clear();
      stream.ended = true;
      break;
    }
    parcel.written += static_cast<size_t>(n);
    if (parcel.written == parcel.bytes.size()) stream.parcels.pop_front();
  }
  if (!stream.ended || !stream.parcels.empty() || stream.finished) return;
  stream.finished = true;
  shutdown(stream.to->get(), SHUT_WR);
}

absl::Time SlowLink::Carry(Stream& stream, absl::Time now) {
  Read(stream, now);
  Write(stream, now);
  absl::Time next = absl::InfiniteFuture();
  if (!stream.parcels.empty() && !stream.wants_write) next = stream.parcels.front().arrival;
  // Without room, look again as the queue empties or a stall ends.
  if (!stream.ended && !stream.wants_read) {
    next = std::min({next, links_[stream.direction].NextDeparture(), now + absl::Milliseconds(1)});
  }
  return next;
}

void SlowLink::Run() {
  while (true) {
    absl::Time next = absl::InfiniteFuture();
    const absl::Time now = SteadyNow();
    for (Stream& stream : streams_) next = std::min(next, Carry(stream, now));
    overruns_.store(links_[0].overruns() + links_[1].overruns(), std::memory_order_relaxed);
    // Sockets close with their second direction.
    streams_.remove_if([](const Stream& stream) { return stream.finished; });

    const absl::Duration left = std::max(absl::Nanoseconds(1), next - SteadyNow());
    const itimerspec in = {{}, next == absl::InfiniteFuture() ? timespec{} : absl::ToTimespec(left)};
    timerfd_settime(timer_.get(), 0, &in, nullptr);
    std::vector<pollfd> waiting = {{stop_.get(), POLLIN, 0}, {timer_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (const Stream& stream : streams_) {
      if (stream.wants_read) waiting.push_back({stream.from->get(), POLLIN, 0});
      if (stream.wants_write) waiting.push_back({stream.to->get(), POLLOUT, 0});
    }
    poll(waiting.data(), waiting.size(), -1);
    if (waiting[0].revents != 0) return;
    uint64_t ignored = 0;
    if (waiting[1].revents != 0) std::ignore = read(timer_.get(), &ignored, sizeof(ignored));
    if (waiting[2].revents != 0) Accept();
  }
}

absl::Status SlowLinkStore::Set(absl::string_view key, absl::string_view value) {
  std::vector<std::string> lines = absl::StrSplit(value, '\n');
  for (std::string& line : lines) {
    if (!absl::StartsWith(line, "tcp\t")) continue;
    absl::StatusOr<Endpoint> target = ParseEndpoint(line.substr(4));
    if (!target.ok()) continue;
    absl::StatusOr<std::unique_ptr<SlowLink>> link = SlowLink::Start(*target, options_);
    if (!link.ok()) return link.status();
    link_ = *std::move(link);
    line = absl::StrCat("tcp\t", ToText(link_->endpoint()));
  }
  return store_.Set(key, absl::StrJoin(lines, "\n"));
}

}  // namespace tidetape::collectives
