#include "planner/frontier.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "planner/planner.h"
#include "planner/tape_plans.h"
#include "planner/testing/oracle.h"
#include "planner/testing/random_tape.h"
#include "planner/validate.h"

namespace tidetape::planner {
namespace {

constexpr double kTolerance = 1e-9;

// The least seconds on the lines between the points (by falling bytes) at the given bytes.
template <typename Points>
double SecondsAt(const Points& points, int64_t bytes) {
  if (bytes < points.back().bytes) return std::numeric_limits<double>::infinity();
  double seconds = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < points.size(); ++i) {
    if (points[i].bytes <= bytes) seconds = std::min(seconds, points[i].seconds);
    if (i == 0 || points[i - 1].bytes < bytes || points[i].bytes > bytes) continue;
    const double share = 1.0 * (points[i - 1].bytes - bytes) / (points[i - 1].bytes - points[i].bytes);
    seconds = std::min(seconds, points[i - 1].seconds + share * (points[i].seconds - points[i - 1].seconds));
  }
  return seconds;
}

// Number of tapes: TIDETAPE_PLANNER_TAPES sets another one for long runs.
int Tapes(int otherwise) {
  const char* text = std::getenv("TIDETAPE_PLANNER_TAPES");
  return text == nullptr ? otherwise : std::atoi(text);
}

TEST(FrontierTest, EqualsEnumerationOnRandomTapes) {
  int exact = 0, inexact = 0, without_plan = 0, vertices = 0;
  for (int seed = 0; exact + inexact < Tapes(2500); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const BlockTape tape = RandomTape(random, 2 + seed % 11);
    ASSERT_TRUE(ValidateTape(tape).ok()) << ValidateTape(tape);
    const std::vector<OraclePlan> plans = AllPlans(tape);
    const auto tape_plans = TapePlans::Create(tape);
    if (plans.empty()) {
      ++without_plan;
      EXPECT_EQ(tape_plans.status().code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    const auto graph = TapeGraph::Build(TapeIndex(tape));
    if (!tape_plans.ok()) {
      // Only a tape on which the cut is not exact may be refused although it has plans.
      ADD_FAILURE() << tape_plans.status();
      continue;
    }
    const std::vector<HullPoint>& bound = (*tape_plans)->bound();
    for (const OraclePlan& plan : plans) {
      EXPECT_GE(plan.seconds, SecondsAt(bound, plan.bytes) - kTolerance) << "a plan lies below the bound";
      EXPECT_GE(plan.bytes, bound.back().bytes);
    }
    const auto points = BlockFrontier(tape);
    ASSERT_TRUE(points.ok()) << points.status();
    for (const FrontierPoint& point : *points) {
      const auto plan = OracleEvaluate(tape, point.saved);
      ASSERT_TRUE(plan.has_value()) << "the frontier holds a plan that cannot be followed";
      EXPECT_EQ(plan->bytes, point.bytes);
      EXPECT_NEAR(plan->seconds, point.replay_seconds, kTolerance);
    }
    if (!graph->exact()) {
      ++inexact;
      continue;
    }
    ++exact;
    vertices += static_cast<int>(points->size());
    // Every point lies on the bound, and the bound is made of nothing else.
    for (const FrontierPoint& point : *points) EXPECT_NEAR(SecondsAt(bound, point.bytes), point.replay_seconds, kTolerance);
    EXPECT_EQ(points->front().bytes, bound.front().bytes);
    EXPECT_EQ(points->back().bytes, bound.back().bytes);
    for (size_t v = 0; v < bound.size(); ++v) {
      const auto reached = std::any_of(plans.begin(), plans.end(), [&](const OraclePlan& plan) {
        return plan.bytes == bound[v].bytes && std::abs(plan.seconds - bound[v].seconds) <= kTolerance;
      });
      EXPECT_TRUE(reached) << "no plan has " << bound[v].bytes << " bytes and " << bound[v].seconds << " s";
    }
    // The least-time end has the least bytes that allow it.
    double least_seconds = std::numeric_limits<double>::infinity();
    for (const OraclePlan& plan : plans) least_seconds = std::min(least_seconds, plan.seconds);
    EXPECT_NEAR(points->front().replay_seconds, least_seconds, kTolerance);
    for (const OraclePlan& plan : plans) {
      if (plan.seconds > least_seconds + kTolerance) continue;
      EXPECT_GE(plan.bytes, points->front().bytes);
    }
    if (HasFailure()) break;
  }
  std::cout << exact << " tapes with " << vertices << " vertices, " << inexact << " with a relaxed bound, " << without_plan
            << " without a plan\n";
  EXPECT_GT(without_plan, 0);
  EXPECT_GT(inexact, 0);
}

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
  for (int seed = 0; seed < Tapes(1500); ++seed) {
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
      EXPECT_GE(OwnPeakBytes(tape, instance, plan.profile), (*plans)->LeastOwnPeakBytes(instance));
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

}  // namespace
}  // namespace tidetape::planner
