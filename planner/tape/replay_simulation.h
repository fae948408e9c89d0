// The memory of one block's lazy backward: what is alive when the agent replays storages at their first reading.
//
// The agent's rule: at a backward event, each storage that is read and not there in its last version is
// produced by running the ops on which it depends
// that have not run yet, in program order. After that, in program order again, ops that are still to be replayed run as well where
// all that they read is there and they free at least what they make: what such an op reads would be held for it otherwise. A
// storage is freed as soon as no op that is still to be replayed reads it and backward has released it.
#ifndef TIDETAPE_PLANNER_TAPE_REPLAY_SIMULATION_H_
#define TIDETAPE_PLANNER_TAPE_REPLAY_SIMULATION_H_

#include <cstdint>
#include <vector>

#include "planner/model/problem.h"
#include "planner/tape/replay_set.h"
#include "planner/tape/tape_index.h"

namespace tidetape::planner {

// Planned bytes through a block's backward. Instances of one tape share it: they differ only in the bytes beside it.
struct ReplayProfile {
  struct Event {
    int64_t replaying_bytes = -1;  // most saved, replayed and workspace bytes while ops run; -1: none runs
    int64_t reading_bytes = 0;     // saved and replayed bytes when all storages that the event reads are there
  };
  std::vector<Event> events;  // one for each of the tape's; a single one, which reads and releases everything, where it has none
};

// Cost: linear in the size of the tape.
ReplayProfile SimulateReplay(const TapeIndex& index, const ReplaySet& set);

// What is alive at an event beside planned storages, above the backward base.
struct LiveBytes {
  int64_t start = 0;     // when the event begins, which a replay stands on
  int64_t gradient = 0;  // at most, until the next event
};

// A tape without events stands on nothing while it replays, then on backward_transient_bytes.
LiveBytes LiveBeside(const BlockTape& tape, const BlockInstance& instance, size_t event);

// The instance's own backward peak in bytes above its backward base: at each event the larger of start_live + replaying and
// gradient_live + reading.
int64_t OwnPeakBytes(const BlockTape& tape, const BlockInstance& instance, const ReplayProfile& profile);
// The first event at which it is reached.
size_t OwnPeakEvent(const BlockTape& tape, const BlockInstance& instance, const ReplayProfile& profile);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_TAPE_REPLAY_SIMULATION_H_
