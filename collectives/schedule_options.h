// What a planner may choose about a collective. All ranks of a group must use the same values: they decide which messages there
// are.
#ifndef TIDETAPE_COLLECTIVES_SCHEDULE_OPTIONS_H_
#define TIDETAPE_COLLECTIVES_SCHEDULE_OPTIONS_H_

#include <cstdint>
#include <limits>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collectives/dtype.h"

namespace tidetape::collectives {

// How shards travel between nodes along a rail.
enum class RailAlgorithm : uint8_t {
  kDoubling,  // recursive doubling where the number of nodes is a power of two, else a ring: fewest rounds
  kRing,      // each node talks to two others only: fewest links in use at once
};

struct ScheduleOptions {
  int64_t chunk_bytes = int64_t{1} << 20;  // most bytes of one put; at least 16
  // Most puts to one peer between two flushes; 1 to 256, NCCL's limit. Schedules that run at the same time share that limit.
  int32_t puts_in_flight = 256;
  absl::Duration gap;  // least time between the starts of two puts over the network
  RailAlgorithm rail = RailAlgorithm::kDoubling;
  // Larger puts to all local ranks are sent one by one: multicast by copy engines wins for small messages only.
  int64_t multicast_most_bytes = std::numeric_limits<int64_t>::max();

  // Reduce-scatter alone:
  double divide_factor = 1;             // gradients are multiplied by its reciprocal after they are summed
  std::optional<DType> gradient_dtype;  // of all gradients, where it is not that of the layout (float32 after steps without sync)
  int32_t staging_slots = 0;            // messages that one sender may have in a receiver's staging at once; 0: all that fit
  bool slot_vacated = true;             // on all ranks of the unit; where not, staging and sums lie beside the slots
};

// InvalidArgument with the field.
absl::Status ValidateScheduleOptions(const ScheduleOptions& options);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_SCHEDULE_OPTIONS_H_
