// Time and memory of a model's collectives in one training step: stock FSDP2, SymmMem-style, and Tidetape.
#ifndef TIDETAPE_COLLECTIVES_SIMULATOR_COMPARE_SCHEMES_H_
#define TIDETAPE_COLLECTIVES_SIMULATOR_COMPARE_SCHEMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/schedule_options.h"
#include "collectives/simulator/machine.h"
#include "collectives/simulator/model_shapes.h"

namespace tidetape::collectives {

struct SchemeCost {
  std::string scheme;            // "stock", "symm-mem", "tidetape"
  double gather_seconds = 0;     // of all all-gathers of a step, one after the other, nothing beside them
  double reduce_seconds = 0;     // likewise of all reduce-scatters
  double copy_seconds = 0;       // of both together: layout copies, conversions and additions
  double gradients_seconds = 0;  // from a layer's gradients to their memory being free, for the unit that occurs most
  double network_load = 0;       // share of that time in which a rank's port to the network sends
  int64_t network_bytes = 0;     // sent by a rank over the network in a step
  int64_t staging_bytes = 0;     // of a rank: buffers beside gathered parameters
  int64_t peak_bytes = 0;        // of a rank: gathered parameters and all such buffers at their most

  double step_seconds() const { return gather_seconds + reduce_seconds; }
};

struct ClusterShape {
  int32_t gpus = 8;
  int32_t per_node = 8;  // divides gpus
};

// What CompareSchemes takes for granted, a sentence each, to be printed beside its numbers.
std::vector<std::string> SchemeAssumptions();

// InvalidArgument where per_node does not divide gpus, or options are out of range.
absl::StatusOr<std::vector<SchemeCost>> CompareSchemes(const ModelShape& model, const ClusterShape& cluster, const Machine& machine,
                                                       const ScheduleOptions& options);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_SIMULATOR_COMPARE_SCHEMES_H_
