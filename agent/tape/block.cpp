#include "agent/tape/block.h"

#include <c10/core/StorageImpl.h>

namespace tidetape::agent {

void Block::SetNames(const NamedTensors& parameters, const NamedTensors& buffers) {
  tensors_.clear();
  AddNames(parameters, false);
  AddNames(buffers, true);
  wants_names_ = false;
}

void Block::AddNames(const NamedTensors& tensors, bool buffers) {
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || !tensor.unsafeGetTensorImpl()->has_storage()) continue;
    const Site site = Mix(HashText("parameter"), HashText(name));
    names_[site] = name;
    tensors_.try_emplace(tensor.storage().unsafeGetStorageImpl(), Entry{tensor.storage().getWeakStorageImpl(), {site, buffers}});
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
