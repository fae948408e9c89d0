// The median of the newest values of a series that has outliers, such as the times of steps.
#ifndef TIDETAPE_SERVER_JOB_RECENT_MEDIAN_H_
#define TIDETAPE_SERVER_JOB_RECENT_MEDIAN_H_

#include <algorithm>
#include <array>
#include <cstddef>

namespace tidetape::server {

// Not thread-safe. A rank has one, so it is small.
class RecentMedian {
 public:
  void Add(float value) { values_[count_++ % kKept] = value; }

  // 0 before the first value.
  float value() const {
    const size_t kept = std::min(count_, kKept);
    if (kept == 0) return 0;
    std::array<float, kKept> sorted = values_;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(kept / 2);
    std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(kept));
    return *middle;
  }

 private:
  static constexpr size_t kKept = 9;

  std::array<float, kKept> values_ = {};
  size_t count_ = 0;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_JOB_RECENT_MEDIAN_H_
