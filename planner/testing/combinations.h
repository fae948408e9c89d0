// Step plans by brute force: every combination of one way to run each block.
#ifndef TIDETAPE_PLANNER_TESTING_COMBINATIONS_H_
#define TIDETAPE_PLANNER_TESTING_COMBINATIONS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "planner/problem.h"
#include "planner/testing/oracle.h"

namespace tidetape::planner {

// One way to run a block.
struct Way {
  int64_t saved = 0;
  int64_t own_peak = 0;
  double seconds = 0;
};

// What a combination comes to for the step.
struct Combination {
  int64_t peak = 0;
  double seconds = 0;
};

// `ways` has an entry for each block of the problem.
inline std::vector<Combination> Combine(const PlanningProblem& problem, const std::vector<std::vector<Way>>& ways) {
  std::vector<Combination> result;
  std::vector<int64_t> saved(ways.size()), peaks(ways.size());
  const std::function<void(size_t, double)> visit = [&](size_t b, double seconds) {
    if (b == ways.size()) {
      result.push_back({OracleStepPeak(problem, saved, peaks), seconds});
      return;
    }
    for (const Way& way : ways[b]) {
      saved[b] = way.saved;
      peaks[b] = way.own_peak;
      visit(b + 1, seconds + way.seconds);
    }
  };
  visit(0, 0);
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
