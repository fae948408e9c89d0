#include "collectives/transports/tcp/progress_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/transports/tcp/steady_time.h"

namespace tidetape::collectives {

absl::StatusOr<std::unique_ptr<ProgressLoop>> ProgressLoop::Make() {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  UniqueFd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  epoll_event event = {EPOLLIN, {.ptr = nullptr}};
  if (!epoll || !wake || !timer || epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0 ||
      epoll_ctl(epoll.get(), EPOLL_CTL_ADD, timer.get(), &event) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot make epoll's descriptors: ", std::strerror(errno)));
  }
  return std::unique_ptr<ProgressLoop>(new ProgressLoop(std::move(epoll), std::move(wake), std::move(timer)));
}

ProgressLoop::ProgressLoop(UniqueFd epoll, UniqueFd wake, UniqueFd timer)
    : epoll_(std::move(epoll)), wake_(std::move(wake)), timer_(std::move(timer)) {}

ProgressLoop::~ProgressLoop() {
  if (!owner_.IsHere()) {
    OwnerProcess::Abandon(std::move(thread_));
    return;
  }
  stopping_.store(true, std::memory_order_release);
  Wake();
  if (thread_.joinable()) thread_.join();
}

void ProgressLoop::Start(std::vector<TcpConnection*> connections) {
  connections_ = std::move(connections);
  thread_ = std::thread([this] { Run(); });
}

void ProgressLoop::Wake() {
  if (!woken_.exchange(true, std::memory_order_acq_rel)) eventfd_write(wake_.get(), 1);
}

void ProgressLoop::Run() {
  while (!stopping_.load(std::memory_order_acquire)) {
    absl::Time next = absl::InfiniteFuture();
    const absl::Time now = SteadyNow();
    for (TcpConnection* connection : connections_) next = std::min(next, connection->Send(now));
    Wait(next);
  }
}

void ProgressLoop::Wait(absl::Time next) {
  const absl::Duration left = next - SteadyNow();
  int timeout = -1;
  if (left <= absl::ZeroDuration()) {
    timeout = 0;
  } else if (next != absl::InfiniteFuture()) {
    const itimerspec in = {{}, absl::ToTimespec(left)};
    timerfd_settime(timer_.get(), 0, &in, nullptr);
  }
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
  for (int i = 0; i < count; ++i) {
    auto* connection = static_cast<TcpConnection*>(events[static_cast<size_t>(i)].data.ptr);
    if (connection == nullptr) {
      // The eventfd or the timer: both are emptied, and all connections are looked at next.
      uint64_t ignored = 0;
      if (read(wake_.get(), &ignored, sizeof(ignored)) > 0) woken_.store(false, std::memory_order_release);
      std::ignore = read(timer_.get(), &ignored, sizeof(ignored));
      continue;
    }
    const uint32_t what = events[static_cast<size_t>(i)].events;
    if ((what & EPOLLOUT) != 0) connection->Writable();
    if ((what & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) connection->Receive();
  }
}

}  // namespace tidetape::collectives
