#include "planner/tape/frontier.h"

#include <algorithm>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "planner/planner.h"
#include "planner/tape/tape_plans.h"
#include "planner/testing/oracle.h"
#include "planner/testing/random_tape.h"

namespace tidetape::planner {
namespace {

// t must be recomputed from the first version of s, so s cannot be saved; the op that makes the last version of s cannot be
// replayed, so d, which is made from it, must be saved.
TEST(FrontierTest, FindsThePlanBesideAForcedReplayOfAnEarlierVersion) {
  BlockTape tape{.name = "forced"};
  tape.storages = {{.kind = StorageKind::kBlockInput}, {.bytes = 3}, {.bytes = 5, .must_recompute = true}, {.bytes = 7}};
  tape.ops = {{.name = "make_s", .cost_seconds = 1, .reads = {0}, .writes = {1}},
              {.name = "make_t", .cost_seconds = 2, .reads = {1}, .writes = {2}},
              {.name = "rewrite_s", .cost_seconds = 4, .reads = {1}, .writes = {1}, .replayable = false},
              {.name = "make_d", .cost_seconds = 8, .reads = {1}, .writes = {3}}};
  tape.consumed = {2, 3};
  const auto points = BlockFrontier(tape);
  ASSERT_TRUE(points.ok()) << points.status();
  ASSERT_EQ(points->size(), 1u);
  EXPECT_EQ((*points)[0].saved, (std::vector<int32_t>{3}));
  EXPECT_EQ((*points)[0].bytes, 7);
  EXPECT_EQ((*points)[0].replay_seconds, 3);
}

TEST(FrontierTest, SimulationEqualsAWalkThatChecksContents) {
  for (int seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const BlockTape tape = RandomTape(random, 3 + seed % 12);
    BlockInstance instance{.backward_transient_bytes = 7};
    if (seed % 2 == 0) {
      for (size_t e = 0; e < tape.backward.size(); ++e) {
        instance.gradient_live_bytes.push_back(random() % 30);
        instance.start_live_bytes.push_back(random() % 30);
      }
    }
    const auto plans = TapePlans::Create(tape);
    if (!plans.ok()) continue;
    const auto check = [&](const TapePlan& plan) {
      const auto oracle = OracleEvaluate(tape, plan.saved);
      ASSERT_TRUE(oracle.has_value());
      EXPECT_EQ(std::vector<int32_t>(oracle->replayed.begin(), oracle->replayed.end()), plan.replayed);
      EXPECT_EQ(OwnPeakBytes(tape, instance, plan.profile), OracleOwnPeak(tape, instance, *oracle));
      EXPECT_GE(OwnPeakBytes(tape, instance, plan.profile), (*plans)->RangeOfOwnPeaks(instance).least_bytes);
    };
    for (size_t v = 0; v < (*plans)->vertices().size(); ++v) check((*plans)->AtVertex(v));
    check((*plans)->KeepAll());
    // And for plans that nobody would choose.
    for (int i = 0; i < 20; ++i) {
      std::vector<int32_t> saved;
      for (size_t s = 0; s < tape.storages.size(); ++s) {
        if (tape.storages[s].must_save || random() % 3 == 0) saved.push_back(s);
      }
      const bool valid =
          std::all_of(saved.begin(), saved.end(), [&](int32_t s) { return tape.storages[s].kind == StorageKind::kIntermediate; }) &&
          OracleEvaluate(tape, saved).has_value();
      const auto plan = EvaluateTapePlan((*plans)->index(), saved);
      ASSERT_EQ(plan.ok(), valid) << plan.status();
      if (valid) check(*plan);
    }
    if (HasFailure()) break;
  }
}

// As many nodes as writers would cost the cut a path through all of them for each.
TEST(TapeGraphTest, WritersOfOneStorageAreOneNode) {
  for (const bool in_place : {false, true}) {
    BlockTape tape{.name = "rewritten"};
    tape.storages = {{.bytes = 1, .kind = StorageKind::kBlockInput}, {.bytes = 10}};
    for (int i = 0; i < 50; ++i) {
      tape.ops.push_back({.name = "write", .cost_seconds = 1, .reads = {in_place && i > 0 ? 1 : 0}, .writes = {1}});
    }
    tape.consumed = {1};
    const TapeIndex index(tape);
    const auto graph = TapeGraph::Build(index);
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(graph->nodes(), 1);
    EXPECT_EQ(graph->demand_seconds(), std::vector<double>{50});
    EXPECT_EQ(graph->supply_bytes(), std::vector<int64_t>{10});
  }
}

}  // namespace
}  // namespace tidetape::planner
