// Runs schedules on paper: the same steps that the executor runs, event by event, with the times of a Machine.
//
// Each rank has four ports: sending and receiving, within the node and over the network. A port carries one message at a time, in
// the order in which messages are issued; a message occupies the sender's port, then, after the latency, the receiver's, both for
// its bytes at the link's rate, the second as the first frees it. Local copies and additions take the rank's own time. Where
// the machine has fewer processors than ranks, what takes one waits for the first that is free, in the order of its beginning.
//
// Folding. Where all nodes do the same work at the same time, one stands for all: messages that a rank sends to other nodes count
// as those that it receives from them. That is exact for even shards on equal machines, and makes thousands of ranks quick. The
// ranks of the first node are simulated.
#ifndef TIDETAPE_COLLECTIVES_SIMULATOR_SIMULATE_H_
#define TIDETAPE_COLLECTIVES_SIMULATOR_SIMULATE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "collectives/schedule.h"
#include "collectives/simulator/machine.h"

namespace tidetape::collectives {

struct SimulatedRank {
  double seconds = 0;                     // until its last step is done
  std::vector<double> phase_end_seconds;  // by phase of its schedule
  double network_busy_seconds = 0;        // of its sending port to the network
  double local_busy_seconds = 0;          // and within the node
  int64_t network_bytes = 0;              // sent
  int64_t local_bytes = 0;
  double compute_seconds = 0;  // copies and additions
};

struct SimulationOptions {
  int32_t per_node = 1;  // rank r is on node r / per_node
  bool fold = false;     // `schedules` are those of node 0, which stands for all
  int32_t per_host = 0;  // rank r takes processors of host r / per_host; 0: of its node
};

// Ranks start together at 0. schedules[i] is of rank i. FailedPrecondition where the ranks wait for each other for ever, or a
// folded node does not match: verify the schedules.
absl::StatusOr<std::vector<SimulatedRank>> Simulate(absl::Span<const Schedule> schedules, const Machine& machine,
                                                    const SimulationOptions& options);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_SIMULATOR_SIMULATE_H_
