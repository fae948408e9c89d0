// Models that the simulator knows, from their public configuration files, cut into units as torchtitan cuts them: embedding, each
// layer, and the last norm with the output head, which stays unsharded between forward and backward.
#ifndef TIDETAPE_COLLECTIVES_SIMULATOR_MODEL_SHAPES_H_
#define TIDETAPE_COLLECTIVES_SIMULATOR_MODEL_SHAPES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/layout_spec.h"

namespace tidetape::collectives {

// Units of one shape; bfloat16 parameters and gradients, names of meshes left open.
struct UnitShape {
  Unit unit;
  int32_t count = 1;
};

struct ModelShape {
  std::string name;
  std::vector<UnitShape> units;  // in order of the forward pass

  int64_t parameters() const;
};

// "llama-3.1-8b", "llama-3.1-70b", "qwen3-8b", "qwen3-32b", "qwen3-30b-a3b".
std::vector<std::string> ModelNames();
// NotFound with the names that there are.
absl::StatusOr<ModelShape> ModelNamed(const std::string& name);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_SIMULATOR_MODEL_SHAPES_H_
