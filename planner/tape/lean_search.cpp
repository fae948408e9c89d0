#include "planner/tape/lean_search.h"

#include <algorithm>

namespace tidetape::planner {
namespace {

std::vector<int32_t> With(std::vector<int32_t> saved, int32_t storage) {
  saved.insert(std::lower_bound(saved.begin(), saved.end(), storage), storage);
  return saved;
}

std::vector<int32_t> Without(std::vector<int32_t> saved, int32_t storage) {
  saved.erase(std::remove(saved.begin(), saved.end(), storage), saved.end());
  return saved;
}

}  // namespace

std::vector<std::vector<int32_t>> AddWhatLowersThePeak(std::vector<int32_t> saved, const std::vector<int32_t>& candidates,
                                                       int64_t evaluations, const EvaluateSaved& evaluate) {
  std::vector<std::vector<int32_t>> found;
  std::optional<LeanPoint> now = evaluate(saved);
  while (now.has_value()) {
    double best_gain = 0;
    std::optional<LeanPoint> best;
    std::vector<int32_t> best_saved;
    for (int32_t storage : candidates) {
      if (std::binary_search(saved.begin(), saved.end(), storage)) continue;
      if (evaluations-- <= 0) return found;
      std::vector<int32_t> with = With(saved, storage);
      const std::optional<LeanPoint> point = evaluate(with);
      if (!point.has_value() || point->own_peak_bytes >= now->own_peak_bytes) continue;
      const double gain = static_cast<double>(now->own_peak_bytes - point->own_peak_bytes) /
                          static_cast<double>(std::max<int64_t>(1, point->saved_bytes - now->saved_bytes));
      if (gain <= best_gain) continue;
      best_gain = gain;
      best = point;
      best_saved = std::move(with);
    }
    if (!best.has_value()) break;
    saved = best_saved;
    now = best;
    found.push_back(std::move(best_saved));
  }
  return found;
}

std::vector<int32_t> DropWhatDoesNotLowerThePeak(std::vector<int32_t> saved, const std::vector<int32_t>& by_falling_bytes,
                                                 int64_t evaluations, const EvaluateSaved& evaluate) {
  std::optional<LeanPoint> now = evaluate(saved);
  if (!now.has_value()) return saved;
  for (int32_t storage : by_falling_bytes) {
    if (!std::binary_search(saved.begin(), saved.end(), storage)) continue;
    if (evaluations-- <= 0) break;
    std::vector<int32_t> without = Without(saved, storage);
    const std::optional<LeanPoint> point = evaluate(without);
    if (!point.has_value() || point->own_peak_bytes > now->own_peak_bytes) continue;
    saved = std::move(without);
    now = point;
  }
  return saved;
}

}  // namespace tidetape::planner
