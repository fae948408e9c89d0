#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_STEADY_TIME_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_STEADY_TIME_H_

#include <chrono>

#include "absl/time/time.h"

namespace tidetape::collectives {

// The time of a clock that nobody sets, from an arbitrary origin: a gap between chunks must not wait for a wall clock that was put
// back.
inline absl::Time SteadyNow() { return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_STEADY_TIME_H_
