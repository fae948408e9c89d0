// The signals of one sender on one index, as NCCL lets them be waited for: on a stream.
//
// NCCL has no way to ask how many signals have come, nor to take a wait back. So every wait is for one signal and has an event
// behind it: events that have passed are signals that have come. A wait that nobody wants any more, because its deadline passed,
// stays, and serves the next caller.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_INBOX_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_INBOX_H_

#include <cstdint>
#include <deque>
#include <mutex>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collectives/device/device.h"

namespace tidetape::collectives {

// Thread-safe, destruction aside.
class Inbox {
 public:
  // Enqueues on the stream a wait for one more signal.
  using WaitForOne = absl::FunctionRef<absl::Status(Device::Stream stream)>;
  // OK while waiting makes sense.
  using Failure = absl::FunctionRef<absl::Status()>;

  // The device must outlive it.
  explicit Inbox(Device& device) : device_(device) {}
  ~Inbox();

  // Takes `count` signals. DEADLINE_EXCEEDED with how many are there, or what `failure` says; both without taking any. A signal
  // that has just come may be seen some milliseconds late.
  absl::Status Take(uint64_t count, absl::Time deadline, WaitForOne wait_for_one, Failure failure);

 private:
  absl::Status Ask(uint64_t count, WaitForOne wait_for_one);
  absl::Status Collect();

  Device& device_;
  std::mutex mutex_;
  Device::Stream stream_ = nullptr;      // made by the first wait: most pairs of sender and index have none
  std::deque<Device::Event> under_way_;  // of waits, in order
  uint64_t come_ = 0;                    // and not taken
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_INBOX_H_
