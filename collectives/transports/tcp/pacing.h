// How a sender spreads its bytes over time, so that a slow link's queue is not overrun.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_PACING_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_PACING_H_

#include <cstdint>

#include "absl/time/time.h"

namespace tidetape::collectives {

// Holds for each peer apart. May differ between ranks and change at any time: frames describe themselves.
struct Pacing {
  // Puts are cut into chunks of at most this many bytes.
  uint64_t chunk_bytes = 1 << 20;
  // Chunks that were sent to a peer and that it has not yet placed; 0 for any number. With chunk_bytes it bounds what can stand in
  // the network's queues.
  int chunks_in_flight = 0;
  // From the end of one chunk to the start of the next.
  absl::Duration gap = absl::ZeroDuration();
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_PACING_H_
