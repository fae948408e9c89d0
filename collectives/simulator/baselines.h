// What FSDP2 does without Tidetape, as schedules for the simulator. Their steps have the right kinds, bytes, peers and order; their
// offsets are all 0, so they can be timed, but neither run nor verified.
#ifndef TIDETAPE_COLLECTIVES_SIMULATOR_BASELINES_H_
#define TIDETAPE_COLLECTIVES_SIMULATOR_BASELINES_H_

#include <cstdint>

#include "collectives/group.h"
#include "collectives/schedule.h"

namespace tidetape::collectives {

// NCCL's rings: as many as a node has ranks, each with an equal part of the bytes, each leaving and entering the nodes over another
// rank's adapter. Each ring has (ranks - 1) rounds, and the rounds of all rings go in step.
//
// Stock all-gather: copy-in of the own shard, rings, copy-out of the whole unit into the parameters (split_with_sizes_copy).
Schedule StockAllGather(const Group& group, int64_t shard_bytes);
// Stock reduce-scatter: copy-in of all gradients with conversion to float32 (chunk_cat), rings of float32 with an addition each
// round, and the division. `shard_elements` of bfloat16 gradients.
Schedule StockReduceScatter(const Group& group, int64_t shard_elements);

// SymmMem-style: the schedule over a flat symmetric buffer, between stock's copies.
Schedule WithGatherCopies(Schedule schedule, int64_t shard_bytes, int64_t unit_bytes);
Schedule WithReduceCopies(Schedule schedule, int64_t unit_elements);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_SIMULATOR_BASELINES_H_
