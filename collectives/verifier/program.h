// What the ranks do one after the other, for the verifier: steps of schedules, and between them what the training does.
#ifndef TIDETAPE_COLLECTIVES_VERIFIER_PROGRAM_H_
#define TIDETAPE_COLLECTIVES_VERIFIER_PROGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/schedule.h"

namespace tidetape::collectives {

// What the training itself does with the memory.
enum class TrainingAction : uint8_t {
  kNone,           // the entry is a step of a schedule
  kReadArena,      // before the program: whatever the arena holds may still be read
  kFillShard,      // before a gather: the own shard is written to its place
  kUseParameters,  // after a gather: the unit's gathered parameters are read
  kFreeGradients,  // after the rows phase: the unit's gradients are overwritten
  kReadOutputs,    // after a reduce-scatter: the optimizer reads the shards
  kReuseArena,     // after the program: the arena is overwritten
};

struct ProgramEntry {
  TrainingAction action = TrainingAction::kNone;
  int32_t run = -1;                    // of the collective; -1 for the first and last entry
  const Schedule* schedule = nullptr;  // of that run on this rank
  int32_t step = -1;

  const Step& get() const { return schedule->steps[step]; }
  bool is(StepKind kind) const { return action == TrainingAction::kNone && get().kind == kind; }
  bool sends() const { return is(StepKind::kPut) || is(StepKind::kMulticast); }
};

// By rank.
using Programs = std::vector<std::vector<ProgramEntry>>;

// As in "rank 3, all-gather of 'layers.0', step 5: wait for 2 of signal 0 from rank 1".
std::string EntryText(int32_t rank, const ProgramEntry& entry);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_VERIFIER_PROGRAM_H_
