#include "agent/session/merge_order.h"

#include <unordered_map>

namespace tidetape::agent {

std::optional<MergedOrder> MergeOrder(const std::vector<uint64_t>& base, const std::vector<uint64_t>& added) {
  std::unordered_map<uint64_t, size_t> places;
  places.reserve(base.size());
  for (size_t i = 0; i < base.size(); ++i) places.emplace(base[i], i);
  MergedOrder order;
  order.base_at.reserve(base.size());
  order.added_at.reserve(added.size());
  size_t next = 0;
  const auto take_base_until = [&](size_t end) {
    for (; next < end; ++next) order.base_at.push_back(static_cast<int32_t>(order.size++));
  };
  for (const uint64_t key : added) {
    const auto found = places.find(key);
    if (found == places.end()) {
      order.added_at.push_back(static_cast<int32_t>(order.size++));
      continue;
    }
    if (found->second < next) return std::nullopt;
    take_base_until(found->second + 1);
    order.added_at.push_back(order.base_at.back());
  }
  take_base_until(base.size());
  return order;
}

}  // namespace tidetape::agent
