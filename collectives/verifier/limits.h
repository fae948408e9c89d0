// What can be said of schedules without running them: puts in flight, and bytes over links.
#ifndef TIDETAPE_COLLECTIVES_VERIFIER_LIMITS_H_
#define TIDETAPE_COLLECTIVES_VERIFIER_LIMITS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "collectives/layout.h"
#include "collectives/verifier/schedule_verifier.h"

namespace tidetape::collectives {

// Ranks, signal indices and counts that exist; puts within puts_in_flight and 256. FailedPrecondition "no such ..." or "in flight".
absl::Status CheckSteps(const Layout& layout, const Schedule& schedule, int32_t ranks);

// Bytes between nodes, and within them, of the whole run: no more than any algorithm must move. FailedPrecondition "too many
// bytes".
//
// All-gather: a rank lacks all shards but its own; those of other nodes come over the network once a node, as each rank's rail.
// Reduce-scatter with B bytes a gradient element: within a node, a rank must get the rows of its rail from all others, (per_node -
// 1) times. Along a rail of n nodes, each block must cross at least n - 1 links as float32. Summing one block over c copies and
// having it in all of them takes 2 (c - 1) crossings.
absl::Status CheckBytes(const Layout& layout, const CollectiveRun& run);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_VERIFIER_LIMITS_H_
