// The stream on which a rank sends to some peers, in order, and how many puts are on their way to each.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_OUTBOX_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_OUTBOX_H_

#include <deque>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/device/device.h"

namespace tidetape::collectives {

// Not thread-safe.
class Outbox {
 public:
  using Failure = absl::FunctionRef<absl::Status()>;

  // For `size` peers, with at most `puts_in_flight` puts under way to each; at least 2. The device must outlive it.
  static absl::StatusOr<std::unique_ptr<Outbox>> Make(Device& device, int size, int puts_in_flight);
  ~Outbox();
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  Device::Stream stream() const { return stream_; }

  // Counts one more put to the peer, which the caller enqueues next. Waits while there are too many.
  absl::Status Admit(int peer, absl::Time deadline, Failure failure);

 private:
  struct Peer {
    std::deque<Device::Event> batches;  // the event behind each batch that may be under way
    int puts = 0;                       // since the last of them
  };

  Outbox(Device& device, int size, int batch) : device_(device), batch_(batch), peers_(static_cast<size_t>(size)) {}

  Device& device_;
  const int batch_;  // half of what may be under way
  Device::Stream stream_ = nullptr;
  std::vector<Peer> peers_;
};

// Waits for the event, which it destroys. DEADLINE_EXCEEDED, or what `failure` says.
absl::Status AwaitEvent(Device& device, Device::Event event, absl::Time deadline, absl::FunctionRef<absl::Status()> failure);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_OUTBOX_H_
