#include "planner/block_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "planner/testing/oracle.h"
#include "planner/testing/random_tape.h"

namespace tidetape::planner {
namespace {

constexpr double kTolerance = 1e-9;

double SecondsWith(const Staircase& staircase, int64_t bytes) {
  for (const Staircase::Step& step : staircase.steps) {
    if (step.bytes <= bytes) return step.seconds;
  }
  return std::numeric_limits<double>::infinity();
}

Staircase Search(const BlockTape& tape, double gap, int64_t visits) {
  const auto root = TapePlans::Create(tape);
  return SearchBlock(tape, **root, gap, visits);
}

void CheckSteps(const BlockTape& tape, const Staircase& staircase) {
  for (size_t i = 0; i < staircase.steps.size(); ++i) {
    const Staircase::Step& step = staircase.steps[i];
    const auto plan = OracleEvaluate(tape, step.saved);
    ASSERT_TRUE(plan.has_value());
    EXPECT_EQ(plan->bytes, step.bytes);
    EXPECT_NEAR(plan->seconds, step.seconds, kTolerance);
    if (i == 0) continue;
    EXPECT_LT(step.bytes, staircase.steps[i - 1].bytes);
    EXPECT_GT(step.seconds, staircase.steps[i - 1].seconds);
  }
}

TEST(BlockSearchTest, FindsAllPlansThatNoOtherBeats) {
  int checked = 0, exact = 0, between_corners = 0;
  for (int seed = 0; checked < 600; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const BlockTape tape = RandomTape(random, 2 + seed % 9);
    const auto root = TapePlans::Create(tape);
    if (!root.ok()) continue;
    ++checked;
    int64_t visits = 10'000'000;
    const Staircase staircase = SearchBlock(tape, **root, 0, visits);
    CheckSteps(tape, staircase);
    exact += staircase.gap_seconds <= kTolerance;
    between_corners += staircase.steps.size() > (*root)->vertices().size();
    for (const OraclePlan& plan : AllPlans(tape)) {
      if (plan.bytes < staircase.steps.back().bytes) continue;
      EXPECT_LE(SecondsWith(staircase, plan.bytes), plan.seconds + staircase.gap_seconds + kTolerance);
    }
    if (HasFailure()) break;
  }
  EXPECT_GT(between_corners, 50);
  EXPECT_GT(exact, checked * 9 / 10);
}

TEST(BlockSearchTest, SaysHowFarItMayBeFromTheBestWhenItStopsEarly) {
  int open = 0;
  for (int seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const BlockTape tape = RandomTape(random, 6 + seed % 5);
    if (!TapePlans::Create(tape).ok()) continue;
    const Staircase staircase = Search(tape, 0, 12 * static_cast<int64_t>(tape.ops.size() + 1) * (1 + seed % 4));
    CheckSteps(tape, staircase);
    open += staircase.gap_seconds > kTolerance;
    for (const OraclePlan& plan : AllPlans(tape)) {
      if (plan.bytes < staircase.steps.back().bytes) continue;
      EXPECT_LE(SecondsWith(staircase, plan.bytes), plan.seconds + staircase.gap_seconds + kTolerance);
    }
    if (HasFailure()) break;
  }
  EXPECT_GT(open, 50);
}

TEST(BlockSearchTest, StopsAtTheGapThatIsAskedFor) {
  std::mt19937_64 random(3);
  const BlockTape tape = LayerTape(random, 200);
  const auto root = TapePlans::Create(tape);
  const double full = (*root)->vertices().back().seconds;
  int64_t visits = 100'000'000;
  const Staircase coarse = SearchBlock(tape, **root, 1e-2 * full, visits);
  EXPECT_LE(coarse.gap_seconds, 1e-2 * full);
  const int64_t left = visits;
  const Staircase fine = SearchBlock(tape, **root, 1e-3 * full, visits);
  EXPECT_LE(fine.gap_seconds, 1e-3 * full);
  EXPECT_LT(visits, left);
  EXPECT_GE(fine.steps.size(), coarse.steps.size());
}

}  // namespace
}  // namespace tidetape::planner
