#include "planner/step/step_planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "planner/planner.h"
#include "planner/tape/tape_plans.h"
#include "planner/testing/combinations.h"
#include "planner/testing/oracle.h"
#include "planner/testing/random_tape.h"

namespace tidetape::planner {
namespace {

constexpr double kTolerance = 1e-9;

// The points of the block's hull.
std::vector<Way> HullWays(const BlockTape& tape, const BlockInstance& block) {
  std::vector<Way> ways;
  const auto hull = BlockFrontier(tape);
  for (const FrontierPoint& point : *hull) {
    const auto plan = OracleEvaluate(tape, point.saved);
    ways.push_back({plan->bytes, OracleOwnPeak(tape, block, *plan), plan->seconds});
  }
  return ways;
}

std::vector<Way> AllWays(const BlockTape& tape, const BlockInstance& block) {
  std::vector<Way> ways;
  for (const OraclePlan& plan : AllPlans(tape)) {
    const Way way{plan.bytes, OracleOwnPeak(tape, block, plan), plan.seconds};
    const bool beaten = std::any_of(ways.begin(), ways.end(), [&](const Way& other) {
      return other.saved <= way.saved && other.own_peak <= way.own_peak && other.seconds <= way.seconds;
    });
    if (!beaten) ways.push_back(way);
  }
  return ways;
}

bool HasPlan(const PlanningProblem& problem) {
  return std::all_of(problem.tapes.begin(), problem.tapes.end(), [](const BlockTape& tape) { return BlockFrontier(tape).ok(); });
}

int64_t LeastPeak(const std::vector<Combination>& combinations) {
  int64_t peak = std::numeric_limits<int64_t>::max();
  for (const Combination& combination : combinations) peak = std::min(peak, combination.peak);
  return peak;
}

double LeastSeconds(const std::vector<Combination>& combinations, int64_t limit) {
  double seconds = std::numeric_limits<double>::infinity();
  for (const Combination& combination : combinations) {
    if (combination.peak <= limit) seconds = std::min(seconds, combination.seconds);
  }
  return seconds;
}

// The parts of a plan agree with each other and with the oracle.
void CheckConsistent(const PlanningProblem& problem, const StepPlan& plan) {
  std::vector<int64_t> saved, peaks;
  double seconds = 0;
  for (size_t b = 0; b < plan.blocks.size(); ++b) {
    const BlockPlan& block = plan.blocks[b];
    const BlockInstance& instance = problem.blocks[b];
    if (instance.options.empty()) {
      const auto oracle = OracleEvaluate(problem.tapes[instance.tape], block.saved);
      ASSERT_TRUE(oracle.has_value());
      EXPECT_EQ(block.saved_bytes, oracle->bytes);
      EXPECT_NEAR(block.replay_seconds, oracle->seconds, kTolerance);
      EXPECT_EQ(block.own_peak_bytes, OracleOwnPeak(problem.tapes[instance.tape], instance, *oracle));
      EXPECT_EQ(block.replayed, std::vector<int32_t>(oracle->replayed.begin(), oracle->replayed.end()));
    } else {
      EXPECT_EQ(block.saved_bytes, instance.options[block.option].saved_bytes);
    }
    saved.push_back(block.saved_bytes);
    peaks.push_back(block.own_peak_bytes);
    seconds += block.replay_seconds;
  }
  EXPECT_EQ(plan.step_peak_bytes, OracleStepPeak(problem, saved, peaks));
  EXPECT_NEAR(plan.replay_seconds, seconds, kTolerance);
}

// Limits at which something happens: the least peak, and peaks of combinations.
std::vector<int64_t> LimitsOf(const std::vector<Combination>& combinations, std::mt19937_64& random) {
  const int64_t least = LeastPeak(combinations);
  std::vector<int64_t> limits{0, std::max<int64_t>(1, least - 1), least, least + 1000};
  for (int i = 0; i < 6; ++i) limits.push_back(std::max<int64_t>(1, combinations[random() % combinations.size()].peak - i % 2));
  return limits;
}

TEST(StepPlannerTest, EqualsEnumerationOfOptions) {
  int checked = 0, infeasible = 0;
  for (int seed = 0; checked < 250; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    PlanningProblem problem = RandomProblem(random, 1 + seed % 4, 3 + seed % 8);
    if (!HasPlan(problem)) continue;
    ++checked;
    std::vector<std::vector<Way>> ways;
    for (BlockInstance& block : problem.blocks) {
      ways.push_back(block.options.empty() ? HullWays(problem.tapes[block.tape], block) : OptionWays(block));
      block.options.clear();
      for (const Way& way : ways.back()) block.options.push_back({way.saved, way.own_peak, way.seconds});
    }
    const std::vector<Combination> combinations = Combine(problem, ways);
    const int64_t least = LeastPeak(combinations);
    for (int64_t limit : LimitsOf(combinations, random)) {
      problem.memory_limit_bytes = limit;
      const auto plan = PlanStep(problem);
      ASSERT_TRUE(plan.ok()) << plan.status();
      CheckConsistent(problem, *plan);
      EXPECT_EQ(plan->least_peak_bytes, least);
      EXPECT_EQ(plan->feasible, limit == 0 || limit >= least);
      infeasible += !plan->feasible;
      const int64_t reachable = std::max(limit, least);
      EXPECT_LE(plan->step_peak_bytes, reachable);
      EXPECT_NEAR(plan->replay_seconds, LeastSeconds(combinations, reachable), kTolerance);
    }
    if (HasFailure()) break;
  }
  EXPECT_GT(infeasible, 100);
}

// Plans of tapes are no worse than the best ones of the hulls' points, and no better than the best of all.
TEST(StepPlannerTest, LiesBetweenTheHullsAndTheOptimum) {
  int checked = 0, lower_peak = 0;
  for (int seed = 0; checked < 250; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    PlanningProblem problem = RandomProblem(random, 1 + seed % 3, 3 + seed % 6);
    if (!HasPlan(problem)) continue;
    ++checked;
    std::vector<std::vector<Way>> hull, all;
    for (const BlockInstance& block : problem.blocks) {
      const bool options = !block.options.empty();
      hull.push_back(options ? OptionWays(block) : HullWays(problem.tapes[block.tape], block));
      all.push_back(options ? OptionWays(block) : AllWays(problem.tapes[block.tape], block));
    }
    const std::vector<Combination> of_hulls = Combine(problem, hull), of_all = Combine(problem, all);
    const int64_t hull_least = LeastPeak(of_hulls);
    for (int64_t limit : LimitsOf(of_hulls, random)) {
      problem.memory_limit_bytes = limit;
      const auto plan = PlanStepClosely(problem, {.visits = 200'000 * (seed % 2)});
      ASSERT_TRUE(plan.ok()) << plan.status();
      CheckConsistent(problem, *plan);
      EXPECT_LE(plan->least_peak_bytes, hull_least);
      EXPECT_GE(plan->least_peak_bytes, LeastPeak(of_all));
      lower_peak += plan->least_peak_bytes < hull_least;
      EXPECT_EQ(plan->feasible, limit == 0 || limit >= plan->least_peak_bytes);
      const int64_t reachable = std::max(limit, plan->least_peak_bytes);
      EXPECT_LE(plan->step_peak_bytes, reachable);
      EXPECT_GE(plan->replay_seconds, LeastSeconds(of_all, reachable) - kTolerance);
      EXPECT_LE(plan->lower_bound_seconds, LeastSeconds(of_all, reachable) + kTolerance);
      const double of_hulls_seconds = LeastSeconds(of_hulls, reachable);  // infinite below their least peak
      EXPECT_LE(plan->replay_seconds, of_hulls_seconds + kTolerance);
    }
    if (HasFailure()) break;
  }
  EXPECT_GT(lower_peak, 10);
}

// No plan at all has a lower own peak than the least, and the lean plans are no worse than the hull.
TEST(StepPlannerTest, LeanPlansLieBetweenTheHullAndTheLeastOwnPeak) {
  int better = 0, checked = 0, least_reached = 0;
  for (int seed = 0; checked < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const PlanningProblem problem = RandomProblem(random, 1, 3 + seed % 6);
    if (!problem.blocks[0].options.empty() || !HasPlan(problem)) continue;
    ++checked;
    const BlockInstance& block = problem.blocks[0];
    const BlockTape& tape = problem.tapes[block.tape];
    const auto plans = TapePlans::Create(tape);
    const auto own_peak = [&](const std::vector<int32_t>& saved) {
      return OracleOwnPeak(tape, block, *OracleEvaluate(tape, saved));
    };
    int64_t hull = std::numeric_limits<int64_t>::max(), lean = hull, least = hull;
    for (size_t v = 0; v < (*plans)->vertices().size(); ++v) hull = std::min(hull, own_peak((*plans)->AtVertex(v).saved));
    int64_t visits = 1'000'000;
    (*plans)->SearchLeanPlans(block, visits);
    for (const TapePlan& plan : (*plans)->lean_plans()) lean = std::min(lean, own_peak(plan.saved));
    for (const OraclePlan& plan : AllPlans(tape)) least = std::min(least, OracleOwnPeak(tape, block, plan));
    EXPECT_LE(lean, hull);
    EXPECT_GE(lean, least);
    better += lean < hull;
    least_reached += lean == least;
  }
  EXPECT_GT(better, 0);
  EXPECT_GT(least_reached, checked / 2);
}

TEST(StepPlannerTest, BoundHoldsForEveryPlanOfTheProblem) {
  int checked = 0;
  for (int seed = 0; checked < 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    PlanningProblem problem = RandomProblem(random, 1 + seed % 3, 2 + seed % 6);
    if (!HasPlan(problem)) continue;
    ++checked;
    std::vector<std::vector<Way>> ways;
    for (const BlockInstance& block : problem.blocks) {
      ways.push_back(block.options.empty() ? AllWays(problem.tapes[block.tape], block) : OptionWays(block));
    }
    const std::vector<Combination> combinations = Combine(problem, ways);
    for (int i = 0; i < 6; ++i) {
      problem.memory_limit_bytes = 1 + combinations[random() % combinations.size()].peak;
      const auto plan = PlanStep(problem);
      ASSERT_TRUE(plan.ok()) << plan.status();
      const int64_t limit = std::max(problem.memory_limit_bytes, plan->step_peak_bytes);
      EXPECT_LE(plan->lower_bound_seconds, LeastSeconds(combinations, limit) + kTolerance);
      EXPECT_LE(plan->lower_bound_seconds, plan->replay_seconds);
      const double gap = plan->replay_seconds - plan->lower_bound_seconds;
      if (gap == 0) {
        EXPECT_EQ(plan->gap_ratio, 0);
      } else {
        EXPECT_DOUBLE_EQ(plan->gap_ratio, gap / plan->lower_bound_seconds);
      }
    }
    if (HasFailure()) break;
  }
}

TEST(StepPlannerTest, UnlimitedKeepsAllThatBackwardReads) {
  int checked = 0;
  for (int seed = 0; checked < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    PlanningProblem problem = RandomProblem(random, 3, 4 + seed % 6);
    if (!HasPlan(problem)) continue;
    ++checked;
    problem.memory_limit_bytes = kUnlimitedBytes;
    const auto plan = PlanStep(problem);
    ASSERT_TRUE(plan.ok()) << plan.status();
    CheckConsistent(problem, *plan);
    EXPECT_TRUE(plan->feasible);
    for (size_t b = 0; b < plan->blocks.size(); ++b) {
      if (!problem.blocks[b].options.empty()) continue;
      const BlockTape& tape = problem.tapes[problem.blocks[b].tape];
      const bool allowed = std::none_of(tape.consumed.begin(), tape.consumed.end(), [&](int32_t s) {
        return tape.storages[s].kind == StorageKind::kIntermediate && tape.storages[s].must_recompute;
      });
      if (!allowed) continue;
      EXPECT_TRUE(plan->blocks[b].replayed.empty());
      for (int32_t s : tape.consumed) {
        if (tape.storages[s].kind != StorageKind::kIntermediate) continue;
        EXPECT_THAT(plan->blocks[b].saved, ::testing::Contains(s));
      }
    }
  }
}

// A layer x -> a -> b -> c, all read by backward in reverse order; each costs 1 s and 10 bytes.
PlanningProblem ThreeLayers() {
  BlockTape tape{.name = "layer"};
  tape.storages = {{.bytes = 10, .kind = StorageKind::kBlockInput}, {.bytes = 10}, {.bytes = 10}, {.bytes = 10}};
  for (int32_t i = 0; i < 3; ++i) tape.ops.push_back({.name = "op", .cost_seconds = 1, .reads = {i}, .writes = {i + 1}});
  tape.consumed = {3, 2, 1};
  for (int32_t s : tape.consumed) tape.backward.push_back({.reads = {s}, .releases = {s}, .gradient_live_bytes = 5});
  PlanningProblem problem;
  problem.tapes = {tape};
  problem.blocks = {{.name = "0"}, {.name = "1"}, {.name = "2"}};
  return problem;
}

TEST(StepPlannerTest, UnlimitedKeepsTheRestBesideWhatMustBeRecomputed) {
  PlanningProblem problem = ThreeLayers();
  problem.tapes[0].storages[2].must_recompute = true;
  problem.tapes[0].ops[2].cost_seconds = 0;  // the fastest plan with the fewest bytes would replay it
  problem.memory_limit_bytes = kUnlimitedBytes;
  const auto plan = PlanStep(problem);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const BlockPlan& block : plan->blocks) EXPECT_EQ(block.saved, (std::vector<int32_t>{1, 3}));
}

TEST(StepPlannerTest, LastBlockIsKeptFirst) {
  PlanningProblem problem = ThreeLayers();
  // All replayed: the last block's backward reaches 30 + 5, with nothing else alive. Keeping the last block costs no more.
  problem.memory_limit_bytes = 35;
  const auto plan = PlanStep(problem);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->step_peak_bytes, 35);
  EXPECT_EQ(plan->saved_bytes, 30);
  EXPECT_EQ(plan->blocks[2].saved, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(plan->replay_seconds, 6);
  EXPECT_EQ(plan->peak_holder.phase, Phase::kBackward);
  EXPECT_EQ(plan->peak_holder.block, 0);
}

TEST(StepPlannerTest, SaysWhatHoldsAnInfeasiblePeak) {
  PlanningProblem problem = ThreeLayers();
  problem.head_peak_bytes = 77;
  problem.memory_limit_bytes = 76;
  const auto plan = PlanStep(problem);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE(plan->feasible);
  EXPECT_EQ(plan->least_peak_bytes, 77);
  EXPECT_EQ(plan->least_peak_holder.phase, Phase::kHead);
  problem.optimizer_peak_bytes = 100;
  EXPECT_EQ(PlanStep(problem)->least_peak_holder.phase, Phase::kOptimizer);
}

TEST(StepPlannerTest, StepFrontierFallsFromKeepingAllToTheLeastPeak) {
  for (int seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    PlanningProblem problem = RandomProblem(random, 3, 8);
    if (!HasPlan(problem)) continue;
    const auto points = StepFrontier(problem);
    ASSERT_TRUE(points.ok()) << points.status();
    problem.memory_limit_bytes = 0;
    EXPECT_EQ(points->back().bytes, PlanStep(problem)->step_peak_bytes);
    problem.memory_limit_bytes = kUnlimitedBytes;
    const StepPlan everything = *PlanStep(problem);
    EXPECT_LE(points->front().bytes, everything.step_peak_bytes);
    EXPECT_NEAR(points->front().replay_seconds, everything.replay_seconds, kTolerance);
    for (size_t i = 1; i < points->size(); ++i) {
      EXPECT_LT((*points)[i].bytes, (*points)[i - 1].bytes);
      EXPECT_GT((*points)[i].replay_seconds, (*points)[i - 1].replay_seconds);
    }
    for (const FrontierPoint& point : *points) {
      // The frontier's planner knows plans that it found for other limits: both lie between the bound and the least known.
      problem.memory_limit_bytes = point.bytes;
      const StepPlan plan = *PlanStep(problem);
      EXPECT_LE(plan.lower_bound_seconds, point.replay_seconds + kTolerance);
      EXPECT_LE(plan.replay_seconds - point.replay_seconds, plan.replay_seconds - plan.lower_bound_seconds + kTolerance);
    }
  }
}

TEST(StepPlannerTest, EvaluatesPlansThatItDidNotChoose) {
  PlanningProblem problem = ThreeLayers();
  problem.memory_limit_bytes = 50;
  const auto plan = EvaluatePlan(problem, {{1}, {}, {3, 1}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->blocks[0].replayed, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(plan->blocks[1].replayed, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(plan->blocks[2].saved, (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(plan->replay_seconds, 6);
  EXPECT_EQ(plan->saved_bytes, 30);
  EXPECT_EQ(plan->step_peak_bytes, 45);  // 1's backward: 10 saved before it, 30 replayed, 5 of gradient
  EXPECT_TRUE(plan->feasible);
}

TEST(StepPlannerTest, RefusesPlansThatNobodyCouldFollow) {
  const auto message = [](const PlanningProblem& problem, const std::vector<std::vector<int32_t>>& saved) {
    const auto plan = EvaluatePlan(problem, saved);
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(plan.status().message());
  };
  using ::testing::HasSubstr;
  PlanningProblem problem = ThreeLayers();
  EXPECT_THAT(message(problem, {{}, {}}), HasSubstr("the plan has lists for 2 blocks, but the problem has 3 blocks"));
  EXPECT_THAT(message(problem, {{}, {7}, {}}), HasSubstr("blocks[1] '1': block 'layer': the plan saves storage 7, but"));
  EXPECT_THAT(message(problem, {{}, {0}, {}}), HasSubstr("saves storage 0, which is always there"));
  EXPECT_THAT(message(problem, {{1, 1}, {}, {}}), HasSubstr("blocks[0] '0': block 'layer': the plan saves storage 1 twice"));
  problem.tapes[0].storages[2].must_recompute = true;
  EXPECT_THAT(message(problem, {{2}, {}, {}}), HasSubstr("saves storage 2, which is must_recompute"));
  problem.tapes[0].storages[1].must_save = true;
  EXPECT_THAT(message(problem, {{}, {1}, {1}}), HasSubstr("does not save storage 1, which is must_save"));
  problem = ThreeLayers();
  problem.tapes[0].ops[1].replayable = false;
  EXPECT_THAT(message(problem, {{}, {2}, {2}}), HasSubstr("the plan needs op 1 'op', which is marked as not replayable"));
  problem = ThreeLayers();
  problem.tapes[0].ops.push_back({.name = "add_", .cost_seconds = 1, .reads = {2}, .writes = {2}});
  EXPECT_THAT(message(problem, {{2}, {}, {}}),
              HasSubstr("the plan saves storage 2 and replays op 2 'op', which stands on an earlier version of it"));
  problem.blocks[0].options = {{}, {}};
  EXPECT_THAT(message(problem, {{2}, {}, {}}), HasSubstr("blocks[0] '0': has 2 options, so the list must hold the index of one"));
}

TEST(StepPlannerTest, NamesTheOpThatLeavesNoPlan) {
  PlanningProblem problem = ThreeLayers();
  problem.tapes[0].storages[3].must_recompute = true;
  problem.tapes[0].storages[2].must_recompute = true;
  problem.tapes[0].ops[1].replayable = false;
  const auto plan = PlanStep(problem);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(plan.status().message()),
      ::testing::AllOf(::testing::HasSubstr("tapes[0], block 'layer': consumed storage"),
                       ::testing::HasSubstr("must_recompute, and its replay needs op 1 'op', which is marked as not replayable")));
}

}  // namespace
}  // namespace tidetape::planner
