#include "planner/tape/plan_space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "planner/testing/oracle.h"
#include "planner/testing/random_tape.h"

namespace tidetape::planner {
namespace {

constexpr double kTolerance = 1e-9;

bool Decided(const BlockTape& region, const BlockTape& tape, const OraclePlan& plan) {
  for (size_t s = 0; s < region.storages.size(); ++s) {
    const bool saved = std::find(plan.saved.begin(), plan.saved.end(), static_cast<int32_t>(s)) != plan.saved.end();
    if (region.storages[s].must_save && !tape.storages[s].must_save && !saved) return false;
    if (region.storages[s].must_recompute && !tape.storages[s].must_recompute && saved) return false;
  }
  return true;
}

// Whatever is split, every plan is in exactly one region, and none goes below what its region knows.
TEST(PlanSpaceTest, RegionsHaveAllPlansAndBoundThem) {
  int checked = 0, splits = 0, lifted = 0;
  for (int seed = 0; checked < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const PlanningProblem problem = RandomProblem(random, 1, 3 + seed % 7);
    const BlockInstance& block = problem.blocks[0];
    if (!block.options.empty()) continue;
    const BlockTape& tape = problem.tapes[block.tape];
    const auto root = TapePlans::Create(tape);
    if (!root.ok()) continue;
    ++checked;
    PlanSpace space(tape, **root);
    for (int i = seed % 12; i > 0 && !space.open().empty(); --i) {
      const int32_t region = space.open()[random() % space.open().size()];
      const std::vector<HullPoint>& hull = space.plans(region).bound();
      const int64_t bytes = hull.back().bytes + static_cast<int64_t>(random() % (hull.front().bytes - hull.back().bytes + 1));
      splits += random() % 2 ? space.SplitBetweenCorners(region, bytes) : space.SplitOnLargest(region);
    }
    for (const OraclePlan& plan : AllPlans(tape)) {
      int in = 0;
      for (int32_t region : space.open()) {
        TapePlans& plans = space.plans(region);
        if (!Decided(plans.index().tape(), tape, plan)) continue;
        ++in;
        EXPECT_LE(BoundSeconds(plans.bound(), plan.bytes), plan.seconds + kTolerance);
        EXPECT_LE(plans.RangeOfOwnPeaks(block).least_bytes, OracleOwnPeak(tape, block, plan));
        lifted += plans.RangeOfOwnPeaks(block).least_bytes > (*root)->RangeOfOwnPeaks(block).least_bytes;
      }
      EXPECT_EQ(in, 1);
    }
    if (HasFailure()) break;
  }
  EXPECT_GT(splits, 500);
  EXPECT_GT(lifted, 500);
}

TEST(PlanSpaceTest, EndsWhereAllIsDecided) {
  std::mt19937_64 random(4);
  const BlockTape tape = LayerTape(random, 8);
  const auto root = TapePlans::Create(tape);
  PlanSpace space(tape, **root);
  for (int i = 0; i < 1000; ++i) {
    const std::vector<int32_t> open = space.open();
    if (std::none_of(open.begin(), open.end(), [&](int32_t region) { return space.SplitOnLargest(region); })) break;
  }
  for (int32_t region : space.open()) EXPECT_EQ(space.plans(region).vertices().size(), 1);
}

}  // namespace
}  // namespace tidetape::planner
