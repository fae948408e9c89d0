// What one rank does in one collective, as data: read alike by the executor that runs it, the verifier that proves it and the
// simulator that times it.
//
// A rank runs its steps in order. Puts, multicasts and signals are asynchronous: they are done when they are issued, and their
// bytes arrive later; a put's source must not change until a later flush, or until the receiver has answered. All other steps are
// done when the next one begins.
#ifndef TIDETAPE_COLLECTIVES_SCHEDULE_H_
#define TIDETAPE_COLLECTIVES_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "collectives/dtype.h"

namespace tidetape::collectives {

enum class StepKind : uint8_t {
  kPut,        // `bytes` from `source` to `destination` in `peer`'s arena; then `signal` rises there by one
  kMulticast,  // the same to all of peer_sets[peer]
  kSignal,     // `signal` rises by one at `peer`
  kWait,       // until `count` more signals from `peer` on `signal` have come
  kFlush,      // until the sources of all puts so far may change
  kCopy,       // `bytes` from `source` to `destination`, both local
  kStore,      // destination (float32) = source (`dtype`), element by element; `bytes` of the source
  kAdd,        // destination (float32) += source (`dtype`)
  kSum,        // destination (float32) = source_sets[sources], added in the order of the set; `bytes` of each; in outputs as kScale
  kScale,      // destination (float32) = factor * source (float32); or += where the caller accumulates
  kUse,        // the training reads `bytes` at `source`: nothing to do, but nobody may write there meanwhile
};

enum class Buffer : uint8_t {
  kArena,     // offsets mean the same on all ranks
  kGradient,  // of parameter `index`: whole, unpadded, contiguous, in its gradient dtype; zeros where the rank has none
  kOutput,    // of parameter `index`: this rank's shard of its gradient, float32, unpadded
};

struct Place {
  Buffer buffer = Buffer::kArena;
  int32_t index = 0;   // of the unit's parameter; 0 in the arena
  int64_t offset = 0;  // bytes
};

struct Step {
  StepKind kind = StepKind::kFlush;
  DType dtype = DType::kFloat32;  // of the source, where it is read as numbers
  bool paced = false;             // a put over the network: keeps the gap to the one before
  int32_t peer = -1;              // a rank of the transport; for a multicast a position in peer_sets
  int32_t signal = -1;
  int32_t count = 0;
  int32_t slot = -1;     // staging slot of the message, for errors; -1 where there is none
  int32_t sources = -1;  // of a sum: a position in source_sets
  int64_t bytes = 0;
  Place source, destination;
};

// A part of a schedule that callers wait for or start on its own. It ends where the next one begins.
struct Phase {
  std::string name;
  int32_t first_step = 0;
};

struct Schedule {
  std::string collective;  // "all-gather", "reduce-scatter"
  std::string unit;        // name, for errors
  int32_t slot = -1;       // of the arena, the unit's, for errors
  int32_t rank = 0;        // of the transport
  std::vector<std::vector<int32_t>> peer_sets;
  std::vector<std::vector<Place>> source_sets;
  std::vector<Step> steps;
  std::vector<Phase> phases;
  double factor = 1;             // of kScale: one over the divide factor
  int32_t puts_in_flight = 256;  // to one peer between two flushes: a promise that the steps keep
  absl::Duration gap;            // between the starts of two paced puts

  // Steps [begin, end) of the phase.
  int32_t begin(int32_t phase) const { return phases[phase].first_step; }
  int32_t end(int32_t phase) const {
    return phase + 1 < static_cast<int32_t>(phases.size()) ? phases[phase + 1].first_step : static_cast<int32_t>(steps.size());
  }

  // Of all that is above, the same on every machine. Prints as HashText.
  uint64_t hash() const;
};

const char* StepName(StepKind kind);

// One line, as in "step 12: put 4096 bytes from arena+8192 to rank 3 at 12288, signal 2".
std::string StepText(const Schedule& schedule, int32_t step);
// The whole schedule, one line a step.
std::string ScheduleText(const Schedule& schedule);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_SCHEDULE_H_
