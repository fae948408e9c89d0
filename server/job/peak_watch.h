// Watches whether what ranks measure stays within the band around a plan's predicted step peak.
//
// What no interval accounts for (a buffer of a library, fragments) shows in the step's peak alone. A rank that is above the band in
// several reports in a row is believed, and by the least that it was above: one odd step changes nothing, so plans do not flap.
// Below the band nothing is done: a plan holds the largest that was seen.
#ifndef TIDETAPE_SERVER_JOB_PEAK_WATCH_H_
#define TIDETAPE_SERVER_JOB_PEAK_WATCH_H_

#include <algorithm>
#include <cstdint>
#include <map>

namespace tidetape::server {

// Not thread-safe.
class PeakWatch {
 public:
  struct Options {
    // Of the predicted step peak, above it.
    double band_ratio = 0.02;
    // Reports of one rank in a row.
    int32_t patience = 3;
  };

  PeakWatch() = default;
  explicit PeakWatch(const Options& options) : options_(options) {}

  // Takes the step peak that a rank measured under the plan. Returns bytes above the prediction once they are believed, and 0
  // before; then it begins anew. Both are in bytes; a prediction of 0 is none.
  int64_t Add(int32_t rank, int64_t measured, int64_t predicted) {
    const int64_t above = measured - predicted;
    if (predicted <= 0 || static_cast<double>(above) <= options_.band_ratio * static_cast<double>(predicted)) {
      above_.erase(rank);
      return 0;
    }
    const auto [it, first] = above_.try_emplace(rank, Run{0, above});
    it->second.least = std::min(it->second.least, above);
    if (++it->second.reports < options_.patience) return 0;
    const int64_t believed = it->second.least;
    above_.clear();
    return believed;
  }

  // Another plan is in force.
  void Reset() { above_.clear(); }

  const Options& options() const { return options_; }

 private:
  struct Run {
    int32_t reports = 0;
    int64_t least = 0;
  };

  Options options_;
  std::map<int32_t, Run> above_;  // by rank
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_JOB_PEAK_WATCH_H_
