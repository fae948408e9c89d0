// All-gather of a unit: every shard goes straight to its place in the gathered parameters of every rank.
//
// Before the last phase: the rank's own shard lies in its place in the own slot (shard_geometry.h), padding untouched. After: every
// shard does, and padding is still untouched. Only bytes of shards are sent, each to each rank once.
//
//   ready    the slot is free: tell those who will write here. May run long before the rest, as soon as the unit that held the slot
//            is resharded.
//   admit    only where the ranks of a host share the slot: wait until all of them have finished with it, then let other nodes
//   write.
//            Before the last phase, and no earlier, the caller writes the own shard.
//   gather   along the rail (same local rank on all nodes) by recursive doubling or a ring; whatever has arrived from another node,
//            and the own shard before, goes to all ranks of the own node at once while the rail is busy.
//
// In a shared slot what one rank of the host has, all have: handing on is a signal without a copy.
//
// Between nodes a rank receives the other nodes' shards of its own rail and nothing else; from its own node it receives the other
// rails. That is the least possible: (shards - 1) shards in all, (nodes - 1) of them over the network.
//
// Recursive doubling along rails: in round i nodes whose numbers differ in bit i exchange all that they have; Thakur, Rabenseifner,
// Gropp, "Optimization of Collective Communication Operations in MPICH" (2005), section 4.1.
#ifndef TIDETAPE_COLLECTIVES_ALL_GATHER_SCHEDULE_H_
#define TIDETAPE_COLLECTIVES_ALL_GATHER_SCHEDULE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "collectives/group.h"
#include "collectives/layout.h"
#include "collectives/schedule.h"
#include "collectives/schedule_options.h"

namespace tidetape::collectives {

// The own rank's steps. InvalidArgument where the group does not fit the unit's mesh, or an option is out of range.
absl::StatusOr<Schedule> AllGatherSchedule(const Layout& layout, int32_t unit, const Group& group, const ScheduleOptions& options);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_ALL_GATHER_SCHEDULE_H_
