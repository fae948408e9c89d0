// From the saved storages of a plan to the ops that its replay runs.
#ifndef TIDETAPE_PLANNER_TAPE_REPLAY_SET_H_
#define TIDETAPE_PLANNER_TAPE_REPLAY_SET_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/tape/tape_index.h"

namespace tidetape::planner {

// One way to run a block: what it saves and therefore replays.
struct ReplaySet {
  Flags saved;     // by storage
  Flags replayed;  // by op: transitively needed for the consumed storages that are not saved
  int64_t saved_bytes = 0;
  double replay_seconds = 0;
};

// InvalidArgument, naming the block and the storage or op, where no agent could follow such a plan:
//  - a must_save storage is not saved, or one is saved that must not or need not be (must_recompute, parameters, block inputs);
//  - an op that is needed cannot be replayed;
//  - a replayed op reads an earlier version of a saved storage, or writes a saved storage that has several writers: in a replay
//    each storage has one place, so that the replay would spoil the saved content.
absl::StatusOr<ReplaySet> FindReplaySet(const TapeIndex& index, const std::vector<int32_t>& saved);

// Positions of the set entries, ascending.
std::vector<int32_t> Positions(const Flags& set);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_TAPE_REPLAY_SET_H_
