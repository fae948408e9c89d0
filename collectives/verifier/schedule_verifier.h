// Proves of the schedules of all ranks, before any byte moves, that they do what they should, however the ranks interleave:
//
//  - no deadlock, and no signal too few or too many (verifier/happens_before.h has the argument);
//  - no byte is written while it may still be read or written by another step, by a put under way, or by the training before,
//  between
//    and after collectives (verifier/memory_model.h);
//  - after an all-gather every byte of every shard is in its place on every rank, came exactly once, and nothing was written to
//    padding; after a reduce-scatter every element of a shard is the sum of every rank's gradient of that element, each once;
//  - gradients are not read after the last rows phase;
//  - never more puts in flight to a peer than the schedule says, NCCL's 256 at most;
//  - no link carries more bytes than the least possible.
//
// The first thing found wrong is the answer, FailedPrecondition, with the rule that is broken first in the text.
#ifndef TIDETAPE_COLLECTIVES_VERIFIER_SCHEDULE_VERIFIER_H_
#define TIDETAPE_COLLECTIVES_VERIFIER_SCHEDULE_VERIFIER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "collectives/group.h"
#include "collectives/layout.h"
#include "collectives/schedule.h"

namespace tidetape::collectives {

enum class CollectiveKind : uint8_t { kAllGather, kReduceScatter };

// One collective on all ranks of a mesh that take part in it: with HSDP, on all copies.
struct CollectiveRun {
  CollectiveKind kind = CollectiveKind::kAllGather;
  int32_t unit = 0;
  std::vector<Group> groups;            // one a rank
  std::vector<Schedule> schedules;      // likewise
  std::optional<DType> gradient_dtype;  // as in ScheduleOptions
};

// A place in the order of a rank's work. The training's own accesses are put in where they belong: the own shard is written before
// the phase after "ready", parameters are used after the last phase of a gather (and again at a `use`), gradients are freed after
// the last rows phase, outputs are read after the last phase.
struct ProgramPart {
  int32_t run = 0;
  int32_t phase = 0;
  bool use = false;  // no phase: the training reads the parameters that the run has gathered
};

// `order[r]` is what rank r does, for ranks 0 to order.size() - 1.
absl::Status VerifyProgram(const Layout& layout, const std::vector<CollectiveRun>& runs,
                           const std::vector<std::vector<ProgramPart>>& order);

// One collective alone. Ranks 0 to the largest of the groups.
absl::Status VerifyCollective(const Layout& layout, const CollectiveRun& run);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_VERIFIER_SCHEDULE_VERIFIER_H_
