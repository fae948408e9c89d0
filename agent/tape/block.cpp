#include "agent/tape/block.h"

#include <c10/core/StorageImpl.h>

namespace tidetape::agent {

void Block::SetParameters(const std::vector<std::pair<std::string, at::Tensor>>& parameters) {
  parameters_.clear();
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.defined() || !tensor.unsafeGetTensorImpl()->has_storage()) continue;
    const Site site = Mix(HashText("parameter"), HashText(name));
    names_[site] = name;
    c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    parameters_.try_emplace(storage, tensor.storage().getWeakStorageImpl(), site);
  }
  wants_names_ = false;
}

Site Block::ParameterSite(const c10::StorageImpl* storage, bool leaf) {
  const auto found = parameters_.find(storage);
  if (found != parameters_.end()) return found->second.second;
  if (leaf) wants_names_ = true;
  return 0;
}

const std::string& Block::ParameterName(Site site) const {
  static const std::string empty;
  const auto found = names_.find(site);
  return found == names_.end() ? empty : found->second;
}

}  // namespace tidetape::agent
