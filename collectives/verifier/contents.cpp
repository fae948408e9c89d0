#include "collectives/verifier/contents.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tidetape::collectives {

int32_t Values::Leaf(const LeafKey& key) {
  const auto [found, added] = leaves_.emplace(key, static_cast<int32_t>(nodes_.size()));
  if (added) nodes_.push_back({key});
  return found->second;
}

int32_t Values::Sum(int32_t left, int32_t right) {
  const auto [found, added] = sums_.emplace(std::pair(left, right), static_cast<int32_t>(nodes_.size()));
  if (added) nodes_.push_back({{}, left, right});
  return found->second;
}

std::vector<int32_t> Values::Ranks(int32_t value, int32_t run, int32_t parameter) const {
  std::vector<int32_t> ranks, open = {value};
  while (!open.empty()) {
    const int32_t at = open.back();
    open.pop_back();
    if (at == kUndefined) {
      ranks.push_back(-1);
    } else if (const Node& node = nodes_[at]; node.left != kUndefined) {
      open.push_back(node.left);
      open.push_back(node.right);
    } else {
      const auto& [leaf_run, leaf_parameter, rank] = node.leaf;
      ranks.push_back(leaf_run == run && leaf_parameter == parameter ? rank : -1);
    }
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::string Values::Text(int32_t value) const {
  if (value == kUndefined) return "bytes that nobody wrote";
  const Node& node = nodes_[value];
  if (node.left != kUndefined) return absl::StrCat("(", Text(node.left), " + ", Text(node.right), ")");
  const auto& [run, parameter, rank] = node.leaf;
  if (rank < 0) return absl::StrCat("parameter ", parameter, " of collective ", run);
  return absl::StrCat("gradient ", parameter, " of rank ", rank, " in collective ", run);
}

}  // namespace tidetape::collectives
