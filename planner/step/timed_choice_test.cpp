#include "planner/step/timed_choice.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "planner/step/step_bound.h"
#include "planner/step/step_memory.h"
#include "planner/tape/tape_plans.h"

namespace tidetape::planner {
namespace {

struct Instance {
  PlanningProblem problem;
  std::vector<std::vector<Choice>> choices;
};

Instance RandomInstance(std::mt19937_64& random, int blocks) {
  Instance instance;
  instance.problem.head_peak_bytes = random() % 100;
  instance.problem.optimizer_peak_bytes = random() % 100;
  for (int b = 0; b < blocks; ++b) {
    BlockInstance block;
    block.forward_base_bytes = random() % 60;
    block.backward_base_bytes = random() % 60;
    instance.problem.blocks.push_back(block);
    std::vector<Choice>& list = instance.choices.emplace_back();
    for (int c = 1 + random() % 6; c > 0; --c) {
      list.push_back({static_cast<int64_t>(random() % 50), static_cast<int64_t>(random() % 80), 1e-3 * (random() % 1000), c});
    }
    KeepParetoChoices(list);
  }
  return instance;
}

double SecondsOf(const Instance& instance, const std::vector<int32_t>& picks) {
  double seconds = 0;
  for (size_t b = 0; b < picks.size(); ++b) seconds += instance.choices[b][picks[b]].seconds;
  return seconds;
}

int64_t PeakOf(const Instance& instance, const std::vector<int32_t>& picks) {
  std::vector<BlockMemory> memory;
  for (size_t b = 0; b < picks.size(); ++b) {
    memory.push_back({instance.choices[b][picks[b]].saved_bytes, instance.choices[b][picks[b]].own_peak_bytes});
  }
  return FindStepPeak(instance.problem, memory).bytes;
}

// By trying all combinations; infinite where none keeps the limit.
double LeastSeconds(const Instance& instance, int64_t limit) {
  double least = std::numeric_limits<double>::infinity();
  std::vector<int32_t> picks(instance.choices.size());
  const std::function<void(size_t)> visit = [&](size_t b) {
    if (b == picks.size()) {
      if (PeakOf(instance, picks) <= limit) least = std::min(least, SecondsOf(instance, picks));
      return;
    }
    for (size_t c = 0; c < instance.choices[b].size(); ++c) {
      picks[b] = static_cast<int32_t>(c);
      visit(b + 1);
    }
  };
  visit(0);
  return least;
}

// Of all mixtures of the choices; nullopt where none keeps the limit.
std::optional<StepBound> BoundOf(const Instance& instance, int64_t limit) {
  std::vector<std::vector<HullPoint>> hulls;
  for (const std::vector<Choice>& list : instance.choices) {
    std::vector<HullPoint> points;
    for (const Choice& choice : list) points.push_back({choice.saved_bytes, choice.seconds});
    hulls.push_back(LowerHull(std::move(points)));
  }
  std::vector<const std::vector<HullPoint>*> pointers;
  for (const std::vector<HullPoint>& hull : hulls) pointers.push_back(&hull);
  const auto prefix_limits = PrefixLimits(instance.problem, LeastOf(instance.choices), limit);
  if (!prefix_limits.has_value()) return std::nullopt;
  return BoundStep(pointers, *prefix_limits);
}

TEST(TimedChoiceTest, BoundsAndReachesTheOptimum) {
  int found = 0, none = 0;
  for (int seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const int blocks = 1 + seed % 5;
    const Instance instance = RandomInstance(random, blocks);
    const int64_t limit = 50 + random() % 250;
    const double most = 0.1 + 1e-3 * (random() % 3000);
    const int units = 1 + random() % 2000;
    const double least = LeastSeconds(instance, limit);
    const std::optional<StepBound> bound = BoundOf(instance, limit);
    if (!bound.has_value()) {
      EXPECT_EQ(least, std::numeric_limits<double>::infinity());
      continue;
    }
    const TimedPicks result = PickByTime(instance.problem, instance.choices, limit, *bound, most, units);
    EXPECT_LE(result.bound_seconds, std::max(least, most) + 1e-12);
    if (result.picks.empty()) {
      ++none;
      EXPECT_GE(least, most - 1e-12);
      EXPECT_EQ(result.bound_seconds, most);
      continue;
    }
    ++found;
    EXPECT_LE(result.bound_seconds, least + 1e-12);
    EXPECT_LE(PeakOf(instance, result.picks), limit);
    EXPECT_LT(SecondsOf(instance, result.picks), result.bound_seconds + blocks * most / units + 1e-12);
  }
  EXPECT_GT(found, 500);
  EXPECT_GT(none, 200);
}

}  // namespace
}  // namespace tidetape::planner
