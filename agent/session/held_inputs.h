// Block inputs that nobody but their block held when the next one began, by position in the order of execution.
//
// Such an input is freed where it is moved to host memory. One that is held elsewhere, as a model's own variables hold the first
// block's input, is not.
#ifndef TIDETAPE_AGENT_SESSION_HELD_INPUTS_H_
#define TIDETAPE_AGENT_SESSION_HELD_INPUTS_H_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include "agent/tape/site.h"

namespace tidetape::agent {

// Not thread-safe.
class HeldInputs {
 public:
  // What one execution held. Of several at one position only what all of them held counts.
  void Add(int32_t position, std::vector<Site> sites) {
    std::sort(sites.begin(), sites.end());
    const auto [known, is_new] = sites_.try_emplace(position, sites);
    if (!is_new) known->second = Common(known->second, sites);
  }

  // Ascending; empty where nothing was seen of the position.
  std::vector<Site> At(int32_t position) const {
    const auto found = sites_.find(position);
    return found == sites_.end() ? std::vector<Site>() : found->second;
  }

  // Of two ascending lists.
  static std::vector<Site> Common(const std::vector<Site>& a, const std::vector<Site>& b) {
    std::vector<Site> common;
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
    return common;
  }

 private:
  std::map<int32_t, std::vector<Site>> sites_;
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_SESSION_HELD_INPUTS_H_
