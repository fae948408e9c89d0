// What the links between ranks can do, measured once, before anything else uses the group.
//
// Ranks of one kind form a ring (the same local rank of all hosts; the ranks of a host), and each sends to the next one while it
// receives from the previous, as in a collective:
//   latency   of messages of 8 bytes round the ring: a message's flight, sender's time taken off
//   rates     of bursts, from the first put to the receiver's answer, a round trip taken off: without a bound, and with several
//             bounds on the bytes in flight. A link whose queue overruns shows it: its rate falls beyond some window
// Each figure is the best of two bursts, because what else runs on the machine can only lower it. A burst takes about 30 ms on the
// link that it measures; a probe takes about half a second, and more on a link that stalls.
#ifndef TIDETAPE_AGENT_FSDP_LINK_PROBE_H_
#define TIDETAPE_AGENT_FSDP_LINK_PROBE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/transport.h"
#include "collectives/transports/tcp/pacing.h"

namespace tidetape::agent {

struct ProbedWindow {
  int64_t window_bytes = 0;  // 0: no bound
  double bytes_per_second = 0;
};

struct ProbedLink {
  double bytes_per_second = 0;  // the best of all windows
  double latency_seconds = 0;
  double put_seconds = 0;  // of the sender
  std::vector<ProbedWindow> windows;
};

struct ProbedLinks {
  std::optional<ProbedLink> local;    // where a host has several ranks
  std::optional<ProbedLink> network;  // where there are several hosts
};

struct ProbeOptions {
  int per_host = 1;            // rank r is on host r / per_host; divides the number of ranks
  uint64_t scratch_bytes = 0;  // of the arena's beginning: zeros are written there
  int first_signal = 0;        // of kProbeSignals that nothing else uses
  // Bounds what goes to other hosts; not set where the transport cannot: then no windows are tried. The caller restores its own.
  std::function<void(const collectives::Pacing&)> set_pacing = nullptr;
  absl::Duration wait_limit = absl::Seconds(60);  // of each wait
};

inline constexpr int kProbeSignals = 3;

// All ranks of the transport call it together. Errors are the transport's.
absl::StatusOr<ProbedLinks> ProbeLinks(collectives::Transport& transport, const ProbeOptions& options);

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_FSDP_LINK_PROBE_H_
