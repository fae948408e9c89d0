#include "agent/tape/block.h"

#include <c10/core/StorageImpl.h>

namespace tidetape::agent {

void Block::SetNames(const NamedTensors& parameters, const NamedTensors& buffers) {
  tensors_.clear();
  AddNames(parameters, false, false);
  AddNames(buffers, true, false);
  wants_names_ = false;
}

void Block::AddInnerUnit(const NamedTensors& parameters) { AddNames(parameters, false, true); }

void Block::AddNames(const NamedTensors& tensors, bool buffers, bool inner_unit) {
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || !tensor.unsafeGetTensorImpl()->has_storage()) continue;
    const Site site = Mix(HashText("parameter"), HashText(name));
    names_[site] = name;
    tensors_.insert_or_assign(tensor.storage().unsafeGetStorageImpl(),
                              Entry{tensor.storage().getWeakStorageImpl(), {site, buffers, inner_unit}});
  }
}

Block::Named Block::Find(const c10::StorageImpl* storage, bool leaf) {
  const auto found = tensors_.find(storage);
  if (found != tensors_.end()) return found->second.named;
  if (leaf) wants_names_ = true;
  return {};
}

const std::string& Block::ParameterName(Site site) const {
  static const std::string empty;
  const auto found = names_.find(site);
  return found == names_.end() ? empty : found->second;
}

}  // namespace tidetape::agent
