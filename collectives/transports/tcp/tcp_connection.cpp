#include "collectives/transports/tcp/tcp_connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/transports/tcp/steady_time.h"

namespace tidetape::collectives {
namespace {

// What one connection may move before the others have their turn.
constexpr size_t kTurnBytes = 4 << 20;

}  // namespace

TcpConnection::TcpConnection(int peer, UniqueFd socket, const TcpOptions& options, const Shared& shared)
    : peer_(peer),
      socket_(std::move(socket)),
      inline_bytes_(options.inline_bytes),
      shared_(shared),
      reader_(shared.arena, shared.signals),
      queue_(options.queue_puts, options.pacing) {}

absl::Status TcpConnection::Watch() {
  epoll_event event = {EPOLLIN, {.ptr = this}};
  if (epoll_ctl(shared_.epoll, EPOLL_CTL_ADD, socket_.get(), &event) == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("cannot watch a socket: ", std::strerror(errno)));
}

void TcpConnection::WatchWrites(bool writes) {
  epoll_event event = {EPOLLIN | (writes ? EPOLLOUT : 0u), {.ptr = this}};
  epoll_ctl(shared_.epoll, EPOLL_CTL_MOD, socket_.get(), &event);
}

TcpConnection::Pushed TcpConnection::Push(absl::Span<const std::byte> source, uint64_t offset, int signal, bool* needs_progress) {
  std::lock_guard lock(mutex_);
  if (refusing_) return Pushed::kClosed;
  if (queue_.full()) return Pushed::kFull;
  const bool at_once = queue_.empty() && source.size() <= inline_bytes_;
  queue_.Push(source, offset, signal);
  if (at_once) SendLocked(SteadyNow());
  // A blocked socket calls by itself.
  *needs_progress = !queue_.empty() && !blocked_;
  return Pushed::kYes;
}

void TcpConnection::SetPacing(const Pacing& pacing) {
  std::lock_guard lock(mutex_);
  queue_.set_pacing(pacing);
}

uint64_t TcpConnection::pushed() const {
  std::lock_guard lock(mutex_);
  return queue_.pushed();
}

bool TcpConnection::HasTaken(uint64_t number) const {
  if (closed()) return true;
  std::lock_guard lock(mutex_);
  return queue_.taken() >= number;
}

void TcpConnection::SayGoodbye(int lost_rank) {
  std::lock_guard lock(mutex_);
  refusing_ = true;
  if (lost_rank >= 0) queue_.Drop();
  queue_.PushGoodbye(lost_rank);
}

absl::Time TcpConnection::Send(absl::Time now) {
  std::lock_guard lock(mutex_);
  if (closed() || blocked_ || send_error_ != 0) return absl::InfiniteFuture();
  SendLocked(now);
  return blocked_ || send_error_ != 0 ? absl::InfiniteFuture() : queue_.NextTime();
}

void TcpConnection::SendLocked(absl::Time now) {
  const uint64_t taken = queue_.taken();
  for (size_t moved = 0; moved < kTurnBytes && !blocked_ && send_error_ == 0;) {
    const absl::Span<const iovec> parts = queue_.Next(now);
    if (parts.empty()) break;
    msghdr message = {};
    message.msg_iov = const_cast<iovec*>(parts.data());
    message.msg_iovlen = parts.size();
    const ssize_t bytes = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (bytes >= 0) {
      queue_.Sent(static_cast<size_t>(bytes), now);
      moved += static_cast<size_t>(bytes);
    } else if (errno == EAGAIN) {
      blocked_ = true;
      WatchWrites(true);
    } else if (errno != EINTR) {
      // Reading finds the end of the connection, after all that the peer still sent.
      send_error_ = errno;
    }
  }
  if (queue_.taken() != taken) shared_.changed->Notify();
}

void TcpConnection::Writable() {
  std::lock_guard lock(mutex_);
  if (!blocked_) return;
  blocked_ = false;
  WatchWrites(false);
}

void TcpConnection::Receive() {
  for (size_t moved = 0; moved < kTurnBytes && !closed();) {
    const absl::Span<const iovec> parts = reader_.Next();
    size_t room = 0;
    for (const iovec& part : parts) room += part.iov_len;
    msghdr message = {};
    message.msg_iov = const_cast<iovec*>(parts.data());
    message.msg_iovlen = parts.size();
    const ssize_t bytes = recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno == EAGAIN) return;
    if (bytes < 0) return Close(absl::StrCat("cannot be reached: ", std::strerror(errno)));
    if (bytes == 0) {
      int error = 0;
      {
        std::lock_guard lock(mutex_);
        error = send_error_;
      }
      // A reset that sending met first is no news: the peer's end is what it tells of.
      const bool died = error == 0 || error == EPIPE || error == ECONNRESET;
      return Close(died ? "died (its connection closed without a goodbye)"
                        : absl::StrCat("cannot be reached: ", std::strerror(error)));
    }
    const absl::Status status =
        reader_.Received(static_cast<size_t>(bytes), [this](const FrameHeader& header) { OnFrame(header); });
    if (!status.ok()) return Close(std::string(status.message()));
    // Less than there was room for: nothing more is there now.
    if (static_cast<size_t>(bytes) < room) return;
    moved += static_cast<size_t>(bytes);
  }
}

void TcpConnection::OnFrame(const FrameHeader& header) {
  switch (header.type) {
    case FrameType::kPut:
    case FrameType::kCountedPut:
      if (header.type == FrameType::kCountedPut) {
        std::lock_guard lock(mutex_);
        queue_.AddAck();
      }
      if (header.signal >= 0) shared_.board->Raise(peer_, header.signal);
      return;
    case FrameType::kAck: {
      std::lock_guard lock(mutex_);
      queue_.Acked(header.bytes);
      return;
    }
    case FrameType::kGoodbye: {
      {
        std::lock_guard lock(mutex_);
        refusing_ = true;
        queue_.Drop();
        queue_.PushGoodbyeAck();
      }
      peer_said_goodbye_ = true;
      shared_.health->ReportLeft(peer_, header.signal);
      return;
    }
    case FrameType::kGoodbyeAck:
      goodbye_acked_.store(true, std::memory_order_release);
      shared_.changed->Notify();
      return;
  }
}

void TcpConnection::Close(const std::string& how) {
  epoll_ctl(shared_.epoll, EPOLL_CTL_DEL, socket_.get(), nullptr);
  {
    std::lock_guard lock(mutex_);
    refusing_ = true;
  }
  closed_.store(true, std::memory_order_release);
  if (!peer_said_goodbye_ && !goodbye_acked_.load(std::memory_order_acquire)) shared_.health->ReportLost(peer_, how);
  shared_.changed->Notify();
}

}  // namespace tidetape::collectives
