// Reduce-scatter of a unit: bf16 or fp32 gradients are read where autograd left them and added, in float32 and in a fixed order,
// into the shards of the ranks that own them.
//
//   ready    the places for staging and sums are free: tell those who will write here. Where they lie in the unit's slot (slot
//            reuse), this must follow the unit's resharding, and where a host shares the slot, all its ranks wait for each other.
//   rows     phase 1, inside a node. Each rank pushes to each local rank the rows that travel on that rank's rail, for all nodes,
//            through staging slots; the receiver adds them in order of local ranks into one block of sums for each node. When the
//            last phase of this name ends, nobody reads the gradients any more.
//            Where there is but one node and one copy, the sums are final and go straight to the outputs.
//   network  phase 2, along rails: a ring over the nodes carries each node's block from the node after the owner round to the
//   owner,
//            and every node adds its own sums on the way. Then HSDP's replicas sum their shards (a ring that reduces, a ring that
//            gathers), and the result, times the reciprocal of the divide factor, goes into the outputs.
//
// Order of additions for an element of node m: with S(n) = ((r(n, 0) + r(n, 1)) + ... ) over the local ranks of node n, the sum is
// (((S(m+1) + S(m+2)) + ...) + S(m)), node numbers modulo the number of nodes. Replicas likewise: the shard is cut into as many
// parts as there are replicas, and part i is summed from replica i + 1 round to i. Nothing depends on time, so results are equal to
// the bit from run to run, and on all replicas.
//
// If the region for sums cannot hold all nodes' blocks, the unit is reduced in rounds of as many elements as it can. Staging has
// the size that the layout gives it; more ranks make messages smaller, not staging larger.
#ifndef TIDETAPE_COLLECTIVES_REDUCE_SCATTER_SCHEDULE_H_
#define TIDETAPE_COLLECTIVES_REDUCE_SCATTER_SCHEDULE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "collectives/group.h"
#include "collectives/layout.h"
#include "collectives/schedule.h"
#include "collectives/schedule_options.h"

namespace tidetape::collectives {

// The own rank's steps; none for a unit whose parameters are all frozen. InvalidArgument where the group does not fit the unit's
// mesh, an option is out of range, a gradient is neither bfloat16 nor float32, or staging is too small for the ranks of a node.
absl::StatusOr<Schedule> ReduceScatterSchedule(const Layout& layout, int32_t unit, const Group& group,
                                               const ScheduleOptions& options);

// The phase at whose end the unit's gradients may be freed; -1 where there are no phases.
int32_t GradientsFreePhase(const Schedule& schedule);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_REDUCE_SCATTER_SCHEDULE_H_
