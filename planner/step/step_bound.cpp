#include "planner/step/step_bound.h"

#include <algorithm>
#include <queue>
#include <utility>

namespace tidetape::planner {

std::optional<std::vector<int64_t>> PrefixLimits(const PlanningProblem& problem, const std::vector<BlockLeast>& least,
                                                 int64_t limit) {
  if (problem.optimizer_peak_bytes > limit) return std::nullopt;
  std::vector<int64_t> limits(least.size());
  int64_t room = limit - problem.head_peak_bytes;  // for the blocks up to and with b
  for (size_t b = least.size(); b-- > 0;) {
    const BlockInstance& block = problem.blocks[b];
    room = std::min(room, limit - block.forward_base_bytes);
    limits[b] = room;
    room = std::min(room - least[b].saved_bytes, limit - block.backward_base_bytes - least[b].own_peak_bytes);
  }
  if (room < 0) return std::nullopt;
  return limits;
}

StepBound BoundStep(const std::vector<const std::vector<HullPoint>*>& hulls, const std::vector<int64_t>& prefix_limits) {
  StepBound bound{.seconds = 0,
                  .saved_bytes = std::vector<int64_t>(hulls.size()),
                  .block_seconds = std::vector<double>(hulls.size()),
                  .byte_prices = std::vector<double>(hulls.size(), 0)};
  std::vector<size_t> segment(hulls.size(), 0);  // from this point of the hull to the next
  using Offer = std::pair<double, size_t>;       // seconds a byte, block
  std::priority_queue<Offer, std::vector<Offer>, std::greater<Offer>> offers;
  const auto offer = [&](size_t b) {
    const std::vector<HullPoint>& hull = *hulls[b];
    if (segment[b] + 1 == hull.size()) return;
    const HullPoint &from = hull[segment[b]], &to = hull[segment[b] + 1];
    offers.emplace((to.seconds - from.seconds) / (from.bytes - to.bytes), b);
  };
  int64_t saved = 0;
  for (size_t b = 0; b < hulls.size(); ++b) {
    bound.saved_bytes[b] = hulls[b]->front().bytes;
    bound.block_seconds[b] = hulls[b]->front().seconds;
    saved += bound.saved_bytes[b];
    offer(b);
    while (saved > prefix_limits[b]) {
      const auto [rate, cheapest] = offers.top();
      int64_t& bytes = bound.saved_bytes[cheapest];
      const int64_t end = (*hulls[cheapest])[segment[cheapest] + 1].bytes;
      const int64_t taken = std::min(bytes - end, saved - prefix_limits[b]);
      bytes -= taken;
      saved -= taken;
      bound.block_seconds[cheapest] += rate * static_cast<double>(taken);
      bound.byte_prices[b] = rate;
      if (bytes > end) continue;
      offers.pop();
      ++segment[cheapest];
      offer(cheapest);
    }
  }
  for (size_t b = hulls.size(); b-- > 0;) {
    bound.seconds += bound.block_seconds[b];
    if (b + 1 < hulls.size()) bound.byte_prices[b] = std::max(bound.byte_prices[b], bound.byte_prices[b + 1]);
  }
  return bound;
}

double ExcessSeconds(const StepBound& bound, size_t block, int64_t saved_bytes, double seconds) {
  return seconds - bound.block_seconds[block] +
         bound.byte_prices[block] * static_cast<double>(saved_bytes - bound.saved_bytes[block]);
}

}  // namespace tidetape::planner
