#include "planner/step/timed_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tidetape::planner {
namespace {

constexpr int64_t kUnreached = std::numeric_limits<int64_t>::max();

}  // namespace

TimedPicks PickByTime(const PlanningProblem& problem, const std::vector<std::vector<Choice>>& choices, int64_t limit,
                      double most_seconds, int32_t units) {
  TimedPicks result{.bound_seconds = most_seconds};
  if (problem.optimizer_peak_bytes > limit) return result;
  const double unit = most_seconds / units;
  const size_t width = static_cast<size_t>(units) + 1;
  std::vector<int64_t> least(width, kUnreached), next(width);  // saved bytes, by units so far
  least[0] = 0;
  std::vector<int32_t> pick(width * choices.size(), -1);
  for (size_t b = 0; b < choices.size(); ++b) {
    const BlockInstance& block = problem.blocks[b];
    std::fill(next.begin(), next.end(), kUnreached);
    for (size_t c = 0; c < choices[b].size(); ++c) {
      const Choice& choice = choices[b][c];
      const double steps = std::floor(choice.seconds / unit);
      if (steps > units) continue;
      const auto takes = static_cast<size_t>(steps);
      // The most bytes before the block with which the choice keeps the limit.
      const int64_t room = std::min({limit - block.forward_base_bytes - choice.saved_bytes,
                                     limit - block.backward_base_bytes - choice.own_peak_bytes,
                                     limit - problem.head_peak_bytes - choice.saved_bytes});
      for (size_t u = 0; u + takes < width; ++u) {
        if (least[u] > room || least[u] + choice.saved_bytes >= next[u + takes]) continue;
        next[u + takes] = least[u] + choice.saved_bytes;
        pick[b * width + u + takes] = static_cast<int32_t>(c);
      }
    }
    // What takes longer and saves no fewer bytes leads nowhere.
    int64_t fewest = kUnreached;
    for (int64_t& bytes : next) {
      if (bytes >= fewest) {
        bytes = kUnreached;
      } else {
        fewest = bytes;
      }
    }
    least.swap(next);
  }
  const auto first = std::find_if(least.begin(), least.end(), [](int64_t bytes) { return bytes != kUnreached; });
  if (first == least.end()) return result;
  auto at = static_cast<size_t>(first - least.begin());
  result.bound_seconds = std::min(most_seconds, static_cast<double>(at) * unit);
  result.picks.resize(choices.size());
  for (size_t b = choices.size(); b-- > 0;) {
    result.picks[b] = pick[b * width + at];
    at -= static_cast<size_t>(std::floor(choices[b][result.picks[b]].seconds / unit));
  }
  return result;
}

}  // namespace tidetape::planner
