// The connection with one peer: a socket, what waits to be sent, what is being received.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_TCP_CONNECTION_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_TCP_CONNECTION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "collectives/transports/common/group_health.h"
#include "collectives/transports/common/signal_board.h"
#include "collectives/transports/common/unique_fd.h"
#include "collectives/transports/tcp/event_count.h"
#include "collectives/transports/tcp/frame_reader.h"
#include "collectives/transports/tcp/send_queue.h"
#include "collectives/transports/tcp/tcp_options.h"

namespace tidetape::collectives {

// Sending is open to all threads, receiving is the progress thread's. Signals go to the board, the peer's end to the health;
// `changed` is notified when puts were taken and when the peer's end came near.
class TcpConnection {
 public:
  enum class Pushed { kYes, kFull, kClosed };

  // Of the rank's own state, shared by its connections; borrowed.
  struct Shared {
    absl::Span<std::byte> arena;
    int signals = 0;
    SignalBoard* board = nullptr;
    GroupHealth* health = nullptr;
    EventCount* changed = nullptr;
    // Where the socket is watched. Registered here, level-triggered, with this object as data.
    int epoll = -1;
  };

  TcpConnection(int peer, UniqueFd socket, const TcpOptions& options, const Shared& shared);
  // Starts to watch the socket.
  absl::Status Watch();

  int peer() const { return peer_; }

  // Queues a put; a small one may be gone when it returns. `needs_progress`: the progress thread must look at this connection.
  Pushed Push(absl::Span<const std::byte> source, uint64_t offset, int signal, bool* needs_progress);
  void SetPacing(const Pacing& pacing);
  uint64_t pushed() const;
  // Whether the source of the put of this number, and of all before it, may be reused.
  bool HasTaken(uint64_t number) const;

  // No put follows. Where a rank was lost, what waits is dropped.
  void SayGoodbye(int lost_rank);
  // The peer has placed everything, or is gone.
  bool finished() const { return goodbye_acked_.load(std::memory_order_acquire) || closed(); }

  // Progress thread: sends what may be sent. Returns when to call again without other cause. Times are SteadyNow's.
  absl::Time Send(absl::Time now);
  // Progress thread: the socket takes bytes again.
  void Writable();
  // Progress thread: reads what is there.
  void Receive();

 private:
  bool closed() const { return closed_.load(std::memory_order_acquire); }
  void SendLocked(absl::Time now);
  void WatchWrites(bool writes);
  void OnFrame(const FrameHeader& header);
  // The stream has ended; `how` completes "rank 3 ..." where it was no orderly end.
  void Close(const std::string& how);

  const int peer_;
  const UniqueFd socket_;
  const size_t inline_bytes_;
  const Shared shared_;
  FrameReader reader_;              // progress thread only
  bool peer_said_goodbye_ = false;  // progress thread only
  std::atomic<bool> closed_ = false;
  std::atomic<bool> goodbye_acked_ = false;

  mutable std::mutex mutex_;
  SendQueue queue_;        // guarded by mutex_
  bool refusing_ = false;  // no puts any more; guarded by mutex_
  bool blocked_ = false;   // the socket takes nothing now; guarded by mutex_
  int send_error_ = 0;     // guarded by mutex_
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_TCP_CONNECTION_H_
