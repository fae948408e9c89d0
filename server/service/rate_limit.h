// A bucket of tokens: a rate in the long run, with bursts.
#ifndef TIDETAPE_SERVER_SERVICE_RATE_LIMIT_H_
#define TIDETAPE_SERVER_SERVICE_RATE_LIMIT_H_

#include <algorithm>

#include "absl/time/time.h"

namespace tidetape::server {

// Not thread-safe.
class RateLimit {
 public:
  // At most `burst` at once and `per_second` in the long run.
  RateLimit(double per_second, double burst) : per_second_(per_second), burst_(burst), left_(burst) {}

  // One more event. Returns how long the next one has to wait; zero where it need not.
  absl::Duration Take(absl::Time now) {
    // A clock that was set back gives nothing, one that jumped ahead a burst at most.
    if (now > last_) left_ = std::min(burst_, left_ + absl::ToDoubleSeconds(now - last_) * per_second_);
    last_ = now;
    left_ -= 1;
    return left_ >= 0 ? absl::ZeroDuration() : absl::Seconds(-left_ / per_second_);
  }

 private:
  const double per_second_;
  const double burst_;
  double left_;
  absl::Time last_ = absl::InfinitePast();
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_SERVICE_RATE_LIMIT_H_
