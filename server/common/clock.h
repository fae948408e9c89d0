// Time as the server sees it. Passed in everywhere, so that tests control it.
#ifndef TIDETAPE_SERVER_COMMON_CLOCK_H_
#define TIDETAPE_SERVER_COMMON_CLOCK_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tidetape::server {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() = 0;
};

class SystemClock final : public Clock {
 public:
  absl::Time Now() override { return absl::Now(); }
};

// Stands still until a test moves it.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(absl::Time now = absl::FromUnixSeconds(1'700'000'000)) : now_(now) {}

  absl::Time Now() override {
    absl::MutexLock lock(&mutex_);
    return now_;
  }

  void Advance(absl::Duration by) {
    absl::MutexLock lock(&mutex_);
    now_ += by;
  }

 private:
  absl::Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_COMMON_CLOCK_H_
