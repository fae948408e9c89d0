// The thread that moves bytes for all connections of a rank while the rank computes.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_PROGRESS_LOOP_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_PROGRESS_LOOP_H_

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/transports/common/owner_process.h"
#include "collectives/transports/common/unique_fd.h"
#include "collectives/transports/tcp/tcp_connection.h"

namespace tidetape::collectives {

// Sleeps in epoll while there is nothing to do. Connections are borrowed; they watch their sockets with epoll().
class ProgressLoop {
 public:
  static absl::StatusOr<std::unique_ptr<ProgressLoop>> Make();
  ~ProgressLoop();

  int epoll() const { return epoll_.get(); }
  void Start(std::vector<TcpConnection*> connections);
  // A connection has something to send. Any thread.
  void Wake();

 private:
  ProgressLoop(UniqueFd epoll, UniqueFd wake, UniqueFd timer);
  void Run();
  // Waits for sockets, for Wake, or until `next`.
  void Wait(absl::Time next);

  const OwnerProcess owner_;
  const UniqueFd epoll_;
  const UniqueFd wake_;
  // Finer than epoll's own timeout: gaps between chunks are microseconds.
  const UniqueFd timer_;
  std::vector<TcpConnection*> connections_;
  std::atomic<bool> woken_ = false;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_PROGRESS_LOOP_H_
