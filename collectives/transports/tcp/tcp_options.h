#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_TCP_OPTIONS_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_TCP_OPTIONS_H_

#include <cstddef>
#include <string>

#include "absl/time/time.h"
#include "collectives/transports/tcp/pacing.h"

namespace tidetape::collectives {

struct TcpOptions {
  // Numeric address of this host that the other hosts reach; see AddressTowards. The rank listens there and nowhere else.
  std::string address;
  Pacing pacing;
  // Puts and signals to one peer that may wait to be sent; NCCL's bound on puts in flight is the same.
  size_t queue_puts = 256;
  // How long a put waits for room in a full queue before it fails.
  absl::Duration queue_timeout = absl::Seconds(60);
  // A peer whose kernel gives no answer for this long is lost. Must outlast any pause of a live process that leaves its receive
  // buffer full.
  absl::Duration dead_after = absl::Seconds(30);
  // How long leaving may wait for peers to take what was put.
  absl::Duration linger = absl::Seconds(5);
  // Puts of at most this many bytes are sent by the caller's thread where nothing waits before them; larger ones by the progress
  // thread, while the caller computes.
  size_t inline_bytes = 32 << 10;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_TCP_OPTIONS_H_
