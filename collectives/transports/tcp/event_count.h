// Lets threads sleep until something may have changed, while they look at the condition without a lock of this object.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_EVENT_COUNT_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_EVENT_COUNT_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tidetape::collectives {

// Use: key = Prepare(); look at the condition; if it does not hold, Wait(key, ...) and start over. Thread-safe.
class EventCount {
 public:
  uint64_t Prepare() {
    std::lock_guard lock(mutex_);
    return events_;
  }
  // Until Notify was called after Prepare, or the deadline: false then.
  bool Wait(uint64_t key, absl::Time deadline) {
    std::unique_lock lock(mutex_);
    // A day bounds what the clock can express.
    const auto until = absl::ToChronoTime(std::min(deadline, absl::Now() + absl::Hours(24)));
    return changed_.wait_until(lock, until, [&] { return events_ != key; });
  }
  void Notify() {
    std::lock_guard lock(mutex_);
    ++events_;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t events_ = 0;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_EVENT_COUNT_H_
