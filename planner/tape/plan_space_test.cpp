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
      TapePlans& plans = space.plans(region);
      const size_t event = random() % plans.event_bytes().size();
      switch (random() % 4) {
        case 0:
          splits += space.SplitBetweenCorners(region, bytes);
          break;
        case 1:
          splits += space.SplitBetweenCorners(region, event, bytes);
          break;
        case 2:
          splits += space.SplitOnHeld(region, event, plans.AtVertex(random() % plans.vertices().size()));
          break;
        case 3:
          splits += space.SplitOnLargest(region);
          break;
      }
    }
    for (const OraclePlan& plan : AllPlans(tape)) {
      int in = 0;
      for (int32_t region : space.open()) {
        TapePlans& plans = space.plans(region);
        if (!IsInRegion(plan, plans.index().tape(), tape)) continue;
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

// The storage that is made from the others and that all of them lead to is not there yet: what is held rises by what it needs.
TEST(PlanSpaceTest, SplitsOnWhatRaisesTheHeldBytesMost) {
  // 0 (input) -> 1 (5 bytes) -> 2 (7 bytes) -> 3 (1 byte), all consumed, 3 first.
  BlockTape tape;
  for (int64_t bytes : {4, 5, 7, 1}) tape.storages.push_back({.bytes = bytes});
  tape.storages[0].kind = StorageKind::kBlockInput;
  for (int32_t s = 1; s < 4; ++s) tape.ops.push_back({.name = "op", .cost_seconds = 1, .reads = {s - 1}, .writes = {s}});
  tape.consumed = {3, 2, 1};
  for (int32_t s : tape.consumed) tape.backward.push_back({.reads = {s}, .releases = {s}});
  const auto root = TapePlans::Create(tape);
  PlanSpace space(tape, **root);
  const TapePlan nothing = *EvaluateTapePlan((*root)->index(), {});
  // To make 3 takes 2; neither 1 nor 2 is there for sure.
  ASSERT_TRUE(space.SplitOnHeld(0, 0, nothing));
  const auto marks = [&](int32_t region) {
    std::string text;
    for (const Storage& s : space.plans(region).index().tape().storages) text += s.must_save ? 's' : s.must_recompute ? 'r' : '-';
    return text;
  };
  ASSERT_EQ(space.open().size(), 2);
  EXPECT_EQ(marks(space.open()[0]), "---s");
  EXPECT_EQ(marks(space.open()[1]), "---r");
  EXPECT_EQ(space.plans(space.open()[1]).event_bytes()[0].held, 1 + 7);
  // There 2 is held, and has to come from 1. Saving 1 would hold 5 more as well, but this plan does not.
  ASSERT_TRUE(space.SplitOnHeld(space.open()[1], 0, nothing));
  EXPECT_EQ(marks(space.open().back()), "--rr");
  EXPECT_EQ(space.plans(space.open().back()).event_bytes()[0].held, 1 + 7 + 5);
  // With all three made nothing raises it any more.
  EXPECT_FALSE(space.SplitOnHeld(space.open().back(), 0, nothing));
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
