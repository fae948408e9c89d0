#include "agent/fsdp/arena_tensors.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <utility>

namespace tidetape::agent {
namespace {

using collectives::DType;
using collectives::ParameterPlace;
using collectives::ShardGeometry;

at::ScalarType ToScalarType(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return at::kBFloat16;
    case DType::kFloat16:
      return at::kHalf;
    case DType::kFloat32:
      return at::kFloat;
    case DType::kFloat64:
      return at::kDouble;
    case DType::kUInt8:
      return at::kByte;
  }
  return at::kByte;
}

// One use of a slot. The storages of the unit's parameters share it; the last one ends it.
struct Lease {
  std::shared_ptr<DataPlane> plane;
  int32_t unit;

  Lease(std::shared_ptr<DataPlane> of, int32_t unit) : plane(std::move(of)), unit(unit) {}
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() { plane->Release(unit); }
};

using LeaseShare = std::shared_ptr<Lease>;

void EndShare(void* share) { delete static_cast<LeaseShare*>(share); }

std::byte* AddressOf(DataPlane& plane, const ParameterPlace& place) { return plane.arena().data() + place.offset; }

}  // namespace

DType ToDType(at::ScalarType type) {
  switch (type) {
    case at::kBFloat16:
      return DType::kBFloat16;
    case at::kHalf:
      return DType::kFloat16;
    case at::kFloat:
      return DType::kFloat32;
    case at::kDouble:
      return DType::kFloat64;
    case at::kByte:
      return DType::kUInt8;
    default:
      TORCH_CHECK(false, "tidetape: the collectives do not move ", type);
  }
}

std::vector<at::Tensor> MakeGatheredTensors(const DataPlane& plane, int32_t unit) {
  std::vector<at::Tensor> tensors;
  const auto& parameters = plane.layout().spec().units[unit].parameters;
  for (size_t p = 0; p < parameters.size(); ++p) {
    const at::ScalarType type = ToScalarType(parameters[p].dtype);
    auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0, at::DataPtr(nullptr, at::kCPU),
                                                         c10::GetCPUAllocator(), /*resizable=*/true);
    at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(type));
    tensor.unsafeGetTensorImpl()->set_sizes_contiguous({plane.layout().units()[unit].parameters[p].geometry.storage_elements()});
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

void LendSlot(const std::shared_ptr<DataPlane>& plane, int32_t unit, const std::vector<at::Tensor>& gathered) {
  const auto lease = std::make_shared<Lease>(plane, unit);
  for (size_t p = 0; p < gathered.size(); ++p) {
    const ParameterPlace& place = plane->layout().units()[unit].parameters[p];
    c10::StorageImpl* storage = gathered[p].storage().unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(at::DataPtr(AddressOf(*plane, place), new LeaseShare(lease), &EndShare, at::kCPU));
    storage->set_nbytes(static_cast<size_t>(place.bytes));
  }
}

std::vector<at::Tensor> OwnShards(const std::shared_ptr<DataPlane>& plane, int32_t unit) {
  std::vector<at::Tensor> tensors;
  const auto& parameters = plane->layout().spec().units[unit].parameters;
  const int32_t self = plane->group(unit).self;
  for (size_t p = 0; p < parameters.size(); ++p) {
    const ParameterPlace& place = plane->layout().units()[unit].parameters[p];
    const ShardGeometry& geometry = place.geometry;
    std::byte* begin = AddressOf(*plane, place) + geometry.storage_element(self, 0) * DTypeBytes(parameters[p].dtype);
    // Pieces lie a whole row of the unsharded dimension apart.
    tensors.push_back(at::from_blob(
        begin, {geometry.outer, geometry.piece_elements(self)}, {geometry.dim * geometry.inner, 1}, [plane](void*) {},
        at::TensorOptions(ToScalarType(parameters[p].dtype))));
  }
  return tensors;
}

}  // namespace tidetape::agent
