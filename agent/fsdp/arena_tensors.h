// Tensors whose memory lies in a data plane's arena.
#ifndef TIDETAPE_AGENT_FSDP_ARENA_TENSORS_H_
#define TIDETAPE_AGENT_FSDP_ARENA_TENSORS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "agent/fsdp/data_plane.h"
#include "collectives/dtype.h"

namespace tidetape::agent {

// Throws c10::Error on a type that the collectives do not move.
collectives::DType ToDType(at::ScalarType type);

// One tensor a parameter of the unit, flat, of the gathered storage's size, without memory: as FSDP2 leaves all_gather_outputs when
// it has resharded them. They live as long as the caller likes.
std::vector<at::Tensor> MakeGatheredTensors(const DataPlane& plane, int32_t unit);

// Puts the unit's slot under the gathered tensors' storages. FSDP2 takes it away by resizing them to nothing; when the last one is
// gone, the plane's Release follows. A storage that is freed and allocated by others in between has ordinary memory. No op is
// dispatched and no version changes.
void LendSlot(const std::shared_ptr<DataPlane>& plane, int32_t unit, const std::vector<at::Tensor>& gathered);

// For each parameter of the unit, where the own shard lies in the slot, in the shape of the shard: the target of the cast. The
// tensors hold the plane.
std::vector<at::Tensor> OwnShards(const std::shared_ptr<DataPlane>& plane, int32_t unit);

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_FSDP_ARENA_TENSORS_H_
