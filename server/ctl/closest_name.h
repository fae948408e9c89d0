// "Did you mean": the known name that is nearest to a mistyped one.
#ifndef TIDETAPE_SERVER_CTL_CLOSEST_NAME_H_
#define TIDETAPE_SERVER_CTL_CLOSEST_NAME_H_

#include <algorithm>
#include <string>
#include <vector>

namespace tidetape::ctl {

// Levenshtein's distance: the fewest insertions, deletions and replacements of one character.
inline size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

// Empty where none is near: more than a third of the longer name would have to change.
inline std::string ClosestName(const std::string& name, const std::vector<std::string>& known) {
  std::string closest;
  size_t least = std::string::npos;
  for (const std::string& candidate : known) {
    const size_t distance = EditDistance(name, candidate);
    if (distance < least && 3 * distance <= std::max(name.size(), candidate.size())) {
      least = distance;
      closest = candidate;
    }
  }
  return closest;
}

}  // namespace tidetape::ctl

#endif  // TIDETAPE_SERVER_CTL_CLOSEST_NAME_H_
