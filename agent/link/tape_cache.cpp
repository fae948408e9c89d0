#include "agent/link/tape_cache.h"

#include <utility>

#include "planner/io/problem_io.h"

namespace tidetape::link {

bool TapeCache::Put(planner::BlockTape tape) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [entry, inserted] = entries_.try_emplace(tape.structure_hash);
  if (!inserted) return false;
  arrivals_.push_back(tape.structure_hash);
  entry->second.tape = std::make_shared<const planner::BlockTape>(std::move(tape));
  return true;
}

bool TapeCache::Has(uint64_t structure_hash) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return entries_.count(structure_hash) > 0;
}

size_t TapeCache::size() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return arrivals_.size();
}

std::vector<uint64_t> TapeCache::Since(size_t position) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (position >= arrivals_.size()) return {};
  return std::vector<uint64_t>(arrivals_.begin() + static_cast<std::ptrdiff_t>(position), arrivals_.end());
}

std::shared_ptr<const std::string> TapeCache::Serialized(uint64_t structure_hash) {
  std::shared_ptr<const planner::BlockTape> tape;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = entries_.find(structure_hash);
    if (found == entries_.end()) return nullptr;
    if (found->second.bytes != nullptr) return found->second.bytes;
    tape = found->second.tape;
  }
  // Outside the lock: this takes long, and the training thread may want to put a tape.
  auto bytes = std::make_shared<const std::string>(planner::ToProto(*tape).SerializeAsString());
  const std::lock_guard<std::mutex> lock(mutex_);
  entries_[structure_hash] = {nullptr, bytes};
  return bytes;
}

}  // namespace tidetape::link
