// How ranks on different hosts connect. Each listens on a port that it publishes, connects to the lower ranks and accepts the
// higher ones. Both sides show the group's token and their ranks before anything else; a connection without is dropped without an
// answer.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_INTRODUCTION_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_INTRODUCTION_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "collectives/transports/common/unique_fd.h"
#include "collectives/transports/rendezvous/rendezvous.h"

namespace tidetape::collectives {

struct RemotePeer {
  int rank = 0;
  UniqueFd socket;  // non-blocking
};

// Connects this rank with each of `peers` (ascending, own rank not among them). Errors name the rank that is missing or
// unreachable.
absl::StatusOr<std::vector<RemotePeer>> ConnectAll(int listener, int rank, const Roster& roster, absl::Span<const int> peers,
                                                   absl::Time deadline);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_INTRODUCTION_H_
