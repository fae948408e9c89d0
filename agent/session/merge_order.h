// Merges sequences that vary from step to step: an element may be missing in one and there in another, but their order holds.
#ifndef TIDETAPE_AGENT_SESSION_MERGE_ORDER_H_
#define TIDETAPE_AGENT_SESSION_MERGE_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tidetape::agent {

struct MergedOrder {
  std::vector<int32_t> base_at;   // the place of each element of the base in the merged sequence
  std::vector<int32_t> added_at;  // of each added one; the same place where both have it
  size_t size = 0;
};

// Keys are unique in each list. An element that the base lacks comes right after its predecessor. Nothing where two elements stand
// in the other order.
std::optional<MergedOrder> MergeOrder(const std::vector<uint64_t>& base, const std::vector<uint64_t>& added);

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_SESSION_MERGE_ORDER_H_
