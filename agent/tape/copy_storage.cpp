#include "agent/tape/copy_storage.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

namespace tidetape::agent {

StorageRef CopyStorage(c10::StorageImpl& original) {
  const auto bytes = static_cast<int64_t>(original.nbytes());
  at::Tensor copy = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(original.device()));
  auto view = c10::make_intrusive<c10::TensorImpl>(c10::Storage(StorageRef::reclaim_copy(&original)), copy.key_set(),
                                                   c10::scalarTypeToTypeMeta(at::kByte));
  view->set_sizes_contiguous({bytes});
  copy.copy_(at::Tensor(std::move(view)));
  return StorageRef::reclaim_copy(copy.storage().unsafeGetStorageImpl());
}

}  // namespace tidetape::agent
