// Step plans by brute force: every combination of one way to run each block.
#ifndef TIDETAPE_PLANNER_TESTING_COMBINATIONS_H_
#define TIDETAPE_PLANNER_TESTING_COMBINATIONS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "planner/model/problem.h"
#include "planner/testing/oracle.h"

namespace tidetape::planner {

// One way to run a block.
struct Way {
  int64_t saved = 0;
  int64_t own_peak = 0;
  double seconds = 0;
  int64_t moved = 0;
};

// What a combination comes to for the step.
struct Combination {
  int64_t peak = 0;
  double seconds = 0;
};

// `ways` has an entry for each block of the problem. Combinations that move more than the host's limit are left out.
inline std::vector<Combination> Combine(const PlanningProblem& problem, const std::vector<std::vector<Way>>& ways) {
  std::vector<Combination> result;
  std::vector<int64_t> saved(ways.size()), peaks(ways.size()), moved(ways.size());
  const std::function<void(size_t, double, int64_t)> visit = [&](size_t b, double seconds, int64_t on_host) {
    if (on_host > problem.host_bytes_limit) return;
    if (b == ways.size()) {
      const int64_t peak =
          on_host == 0 ? OracleStepPeak(problem, saved, peaks) : OracleMovingStepPeak(problem, saved, moved, peaks);
      result.push_back({peak, seconds});
      return;
    }
    for (const Way& way : ways[b]) {
      saved[b] = way.saved;
      peaks[b] = way.own_peak;
      moved[b] = way.moved;
      visit(b + 1, seconds + way.seconds, on_host + way.moved);
    }
  };
  visit(0, 0, 0);
  return result;
}

// The ways of a block that brings options instead of a tape.
inline std::vector<Way> OptionWays(const BlockInstance& block) {
  std::vector<Way> ways;
  for (const BlockOption& option : block.options) ways.push_back({option.saved_bytes, option.own_peak_bytes, option.seconds});
  return ways;
}

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_TESTING_COMBINATIONS_H_
