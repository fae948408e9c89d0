// The planner against the enumeration of all plans, on random tapes of every kind: storages with several writers, in-place
// versions, must-save and must-recompute ones, ones that are held anyway or need no bytes, and ops that cannot be replayed.
//
// TIDETAPE_PLANNER_TAPES sets the number of tapes.
#include "planner/testing/enumeration.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "planner/model/validate.h"
#include "planner/planner.h"
#include "planner/tape/tape_plans.h"
#include "planner/testing/combinations.h"
#include "planner/testing/oracle.h"
#include "planner/testing/random_tape.h"

namespace tidetape::planner {
namespace {

constexpr double kTolerance = 1e-9;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

int Tapes() {
  const char* text = std::getenv("TIDETAPE_PLANNER_TAPES");
  return text == nullptr ? 2000 : std::atoi(text);
}

// Corners of the lower hull of plans by rising bytes and falling seconds, from the fewest bytes to the least time.
std::vector<Enumeration::Plan> HullOf(const std::vector<Enumeration::Plan>& best) {
  std::vector<Enumeration::Plan> hull;
  for (const Enumeration::Plan& plan : best) {
    while (hull.size() >= 2) {
      const Enumeration::Plan &a = hull[hull.size() - 2], &b = hull.back();
      const double on_the_line = a.seconds + (plan.seconds - a.seconds) * static_cast<double>(b.bytes - a.bytes) /
                                                 static_cast<double>(plan.bytes - a.bytes);
      if (b.seconds < on_the_line - kTolerance) break;
      hull.pop_back();
    }
    hull.push_back(plan);
  }
  return hull;
}

double LeastSeconds(const std::vector<Enumeration::Plan>& best, int64_t bytes) {
  double seconds = kInfinity;
  for (const Enumeration::Plan& plan : best) {
    if (plan.bytes <= bytes) seconds = plan.seconds;
  }
  return seconds;
}

class RandomTapes : public testing::Test {
 protected:
  // Calls `check` with so many tapes that have a plan, and counts those without one, which the planner must refuse.
  void ForEach(int most_intermediates, const std::function<void(const BlockTape&, const Enumeration&, std::mt19937_64&)>& check) {
    for (int seed = 0, checked = 0; checked < Tapes() && !HasFailure(); ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      std::mt19937_64 random(seed);
      const BlockTape tape = RandomTape(random, 2 + seed % (most_intermediates - 1));
      ASSERT_TRUE(ValidateTape(tape).ok()) << ValidateTape(tape);
      const Enumeration all(tape);
      if (all.plans().empty()) {
        ++without_plan_;
        EXPECT_EQ(BlockFrontier(tape).status().code(), absl::StatusCode::kInvalidArgument);
        continue;
      }
      ++checked;
      check(tape, all, random);
    }
    EXPECT_GT(without_plan_, 0);
  }

  int without_plan_ = 0;
};

TEST_F(RandomTapes, HullPointsAreThoseOfAllPlans) {
  int corners = 0, inexact = 0;
  ForEach(18, [&](const BlockTape& tape, const Enumeration& all, std::mt19937_64& random) {
    const std::vector<Enumeration::Plan> best = all.Best(), hull = HullOf(best);
    const auto points = BlockFrontier(tape);
    ASSERT_TRUE(points.ok()) << points.status();
    for (const FrontierPoint& point : *points) {
      const auto plan = OracleEvaluate(tape, point.saved);
      ASSERT_TRUE(plan.has_value()) << "the frontier holds a plan that nobody could follow";
      EXPECT_EQ(plan->bytes, point.bytes);
      EXPECT_NEAR(plan->seconds, point.replay_seconds, kTolerance);
    }
    if (!TapeGraph::Build(TapeIndex(tape))->exact()) {
      ++inexact;
      return;
    }
    // Points of the planner come by falling bytes. It leaves out corners that hardly stand out.
    for (const FrontierPoint& point : *points) {
      const bool corner = std::any_of(hull.begin(), hull.end(), [&](const Enumeration::Plan& plan) {
        return plan.bytes == point.bytes && std::abs(plan.seconds - point.replay_seconds) <= kTolerance;
      });
      EXPECT_TRUE(corner) << point.bytes << " bytes, " << point.replay_seconds << " s is no corner";
    }
    EXPECT_EQ(points->size(), hull.size());
    corners += static_cast<int>(points->size());
  });
  std::cout << corners << " corners, " << inexact << " tapes on which the cut is not exact\n";
  EXPECT_GT(inexact, 0);
}

// Also where the cut is not exact.
TEST_F(RandomTapes, NoPlanLiesBelowTheBound) {
  ForEach(18, [&](const BlockTape& tape, const Enumeration& all, std::mt19937_64& random) {
    const auto plans = TapePlans::Create(tape);
    ASSERT_TRUE(plans.ok()) << plans.status();
    const std::vector<HullPoint>& bound = (*plans)->bound();
    for (const Enumeration::Plan& plan : all.Best()) {
      ASSERT_GE(plan.bytes, bound.back().bytes);
      EXPECT_GE(plan.bytes, bound.back().bytes);
      for (size_t i = 1; i < bound.size(); ++i) {
        const HullPoint &rich = bound[i - 1], &lean = bound[i];
        const double slope = (lean.seconds - rich.seconds) / static_cast<double>(rich.bytes - lean.bytes);
        EXPECT_GE(plan.seconds, lean.seconds - slope * static_cast<double>(plan.bytes - lean.bytes) - kTolerance);
      }
      EXPECT_GE(plan.seconds, bound.front().seconds - kTolerance);
    }
  });
}

TEST_F(RandomTapes, PointsBetweenCornersAreTheFastest) {
  int between = 0;
  ForEach(18, [&](const BlockTape& tape, const Enumeration& all, std::mt19937_64& random) {
    const std::vector<Enumeration::Plan> best = all.Best();
    const auto corners = BlockFrontier(tape);
    for (int i = 0; i < 3; ++i) {
      const int64_t limit = best[random() % best.size()].bytes + static_cast<int64_t>(random() % 2);
      const auto fastest = FastestBlockPlan(tape, limit, {.visits = 1'000'000'000, .gap_of_full_replay = 0});
      ASSERT_TRUE(fastest.ok()) << fastest.status();
      const auto plan = OracleEvaluate(tape, fastest->point.saved);
      ASSERT_TRUE(plan.has_value());
      EXPECT_LE(plan->bytes, limit);
      EXPECT_NEAR(plan->seconds, fastest->point.replay_seconds, kTolerance);
      EXPECT_NEAR(fastest->point.replay_seconds, LeastSeconds(best, limit), kTolerance);
      EXPECT_NEAR(fastest->lower_bound_seconds, fastest->point.replay_seconds, kTolerance);
      double at_a_corner = kInfinity;
      for (const FrontierPoint& corner : *corners) {
        if (corner.bytes <= limit) at_a_corner = std::min(at_a_corner, corner.replay_seconds);
      }
      between += fastest->point.replay_seconds < at_a_corner - kTolerance;
    }
    EXPECT_FALSE(FastestBlockPlan(tape, best.front().bytes - 1, {.visits = 1'000'000'000}).ok());
  });
  std::cout << between << " points between corners\n";
  EXPECT_GT(between, Tapes() / 20);
}

// Replayed ops, bytes, seconds and own peak of plans that the planner would choose and of others.
TEST_F(RandomTapes, PlansCostWhatAWalkThroughBackwardSays) {
  ForEach(18, [&](const BlockTape& tape, const Enumeration& all, std::mt19937_64& random) {
    BlockInstance instance{.backward_transient_bytes = static_cast<int64_t>(random() % 30)};
    for (size_t e = 0; random() % 2 == 0 && e < tape.backward.size(); ++e) {
      instance.gradient_live_bytes.push_back(static_cast<int64_t>(random() % 30));
    }
    if (instance.gradient_live_bytes.size() != tape.backward.size()) instance.gradient_live_bytes.clear();
    const auto plans = TapePlans::Create(tape);
    const auto check = [&](const TapePlan& plan) {
      const auto oracle = OracleEvaluate(tape, plan.saved);
      ASSERT_TRUE(oracle.has_value());
      EXPECT_EQ(std::vector<int32_t>(oracle->replayed.begin(), oracle->replayed.end()), plan.replayed);
      EXPECT_EQ(plan.saved_bytes, oracle->bytes);
      EXPECT_NEAR(plan.replay_seconds, oracle->seconds, kTolerance);
      EXPECT_EQ(OwnPeakBytes(tape, instance, plan.profile), OracleOwnPeak(tape, instance, *oracle));
      const OwnPeakRange range = (*plans)->RangeOfOwnPeaks(instance);
      EXPECT_GE(OwnPeakBytes(tape, instance, plan.profile), range.least_bytes);
      EXPECT_GE(OwnPeakBytes(tape, instance, plan.profile), plan.saved_bytes + range.standing_bytes);
      EXPECT_LE(OwnPeakBytes(tape, instance, plan.profile), range.most_bytes);
    };
    check((*plans)->AtVertex(0));
    check((*plans)->AtVertex(static_cast<int32_t>((*plans)->vertices().size()) - 1));
    check((*plans)->KeepAll());
    for (int i = 0; i < 6; ++i) {
      const auto plan = EvaluateTapePlan((*plans)->index(), all.Saved(all.plans()[random() % all.plans().size()]));
      ASSERT_TRUE(plan.ok()) << plan.status();
      check(*plan);
    }
  });
}

// Ways to run the block that no other one beats in bytes, own peak and seconds. Also plans with idle storages: one that is held
// anyway spares a replay the making of it, which can lower the own peak.
std::vector<Way> BestWays(const BlockTape& tape, const Enumeration& all, const BlockInstance& block) {
  std::vector<Way> ways = OptionWays(block);
  if (!ways.empty()) return ways;
  for (const Enumeration::Plan& plan : all.plans()) {
    const int64_t peak = OracleOwnPeak(tape, block, *OracleEvaluate(tape, all.Saved(plan)));
    const bool beaten = std::any_of(ways.begin(), ways.end(), [&](const Way& other) {
      return other.saved <= plan.bytes && other.own_peak <= peak && other.seconds <= plan.seconds;
    });
    if (!beaten) ways.push_back({plan.bytes, peak, plan.seconds});
  }
  return ways;
}

// Step plans: within the proven gap of the best of all combinations, which the bound does not pass.
TEST(RandomSteps, PlansAreTheFastestOfAllCombinations) {
  int solved = 0, equal = 0, with_a_gap = 0;
  for (int seed = 0, checked = 0; checked < Tapes() && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const int blocks = 1 + seed % 3;
    PlanningProblem problem = RandomProblem(random, blocks, 2 + seed % (blocks == 1 ? 13 : 7));
    std::vector<Enumeration> enumerations;
    for (const BlockTape& tape : problem.tapes) enumerations.emplace_back(tape);
    if (std::any_of(enumerations.begin(), enumerations.end(), [](const Enumeration& all) { return all.plans().empty(); })) continue;
    checked += static_cast<int>(problem.tapes.size());
    std::vector<std::vector<Way>> ways;
    for (const BlockInstance& block : problem.blocks) {
      ways.push_back(BestWays(problem.tapes[block.tape], enumerations[block.tape], block));
    }
    const std::vector<Combination> combinations = Combine(problem, ways);
    for (int i = 0; i < 3; ++i) {
      problem.memory_limit_bytes = combinations[random() % combinations.size()].peak;
      if (problem.memory_limit_bytes == 0) continue;
      const auto plan = PlanStepClosely(problem, {.visits = 2'000'000, .gap_of_full_replay = 1e-4});
      ASSERT_TRUE(plan.ok()) << plan.status();
      // The least peak that the planner can reach may lie above that of all combinations.
      EXPECT_EQ(plan->feasible, problem.memory_limit_bytes >= plan->least_peak_bytes);
      if (!plan->feasible) continue;
      double least = kInfinity;
      for (const Combination& combination : combinations) {
        if (combination.peak <= problem.memory_limit_bytes) least = std::min(least, combination.seconds);
      }
      ++solved;
      EXPECT_LE(plan->step_peak_bytes, problem.memory_limit_bytes);
      EXPECT_GE(plan->replay_seconds, least - kTolerance);
      EXPECT_LE(plan->lower_bound_seconds, least + kTolerance);
      equal += plan->replay_seconds <= least + kTolerance;
      double full = 0;
      for (const BlockInstance& block : problem.blocks) {
        if (block.options.empty()) full += BlockFrontier(problem.tapes[block.tape])->back().replay_seconds;
      }
      with_a_gap += plan->replay_seconds - plan->lower_bound_seconds > 1e-4 * full + kTolerance;
    }
  }
  std::cout << solved << " step plans, " << equal << " equal to the best of all combinations, " << with_a_gap
            << " with a gap that is wider than asked for\n";
  EXPECT_GT(equal, solved * 99 / 100);
  EXPECT_LT(with_a_gap, solved / 50);
}

// The third choice: a way for each plan of the block and each set of what it may move, unless another one is no worse in anything.
// Also plans with idle storages: one that is held anyway spares a replay the making of it.
std::vector<Way> BestMovingWays(const PlanningProblem& problem, const Enumeration& all, const BlockInstance& block) {
  std::vector<Way> ways = OptionWays(block);
  if (!ways.empty()) return ways;
  const BlockTape& tape = problem.tapes[block.tape];
  for (const Enumeration::Plan& plan : all.plans()) {
    const std::vector<int32_t> saved = all.Saved(plan);
    const int64_t peak = OracleOwnPeak(tape, block, *OracleEvaluate(tape, saved));
    std::vector<int64_t> movable;
    for (int32_t s : saved) {
      if (!tape.storages[s].held_anyway && tape.storages[s].bytes > 0) movable.push_back(tape.storages[s].bytes);
    }
    for (int32_t s : block.held_inputs) movable.push_back(tape.storages[s].bytes);
    for (uint32_t set = 0; set < 1u << movable.size(); ++set) {
      int64_t moved = 0;
      for (size_t i = 0; i < movable.size(); ++i) moved += set >> i & 1 ? movable[i] : 0;
      if (moved > problem.host_bytes_limit) continue;
      const Way way{plan.bytes - moved, peak, plan.seconds + 2 * static_cast<double>(moved) / problem.host_bytes_per_second, moved};
      const bool beaten = std::any_of(ways.begin(), ways.end(), [&](const Way& other) {
        return other.saved <= way.saved && other.own_peak <= way.own_peak && other.seconds <= way.seconds &&
               other.moved <= way.moved;
      });
      if (!beaten) ways.push_back(way);
    }
  }
  return ways;
}

// What the plan says of itself, by the oracle's account.
void ExpectTrue(const PlanningProblem& problem, const StepPlan& plan) {
  std::vector<int64_t> saved, moved, peaks;
  int64_t on_host = 0;
  double seconds = 0;
  for (size_t b = 0; b < problem.blocks.size(); ++b) {
    const BlockPlan& block = plan.blocks[b];
    saved.push_back(block.saved_bytes);
    moved.push_back(block.moved_bytes);
    peaks.push_back(block.own_peak_bytes);
    seconds += block.replay_seconds + block.move_seconds;
    on_host += block.moved_bytes;
    if (!problem.blocks[b].options.empty()) {
      EXPECT_EQ(block.moved_bytes, 0);
      continue;
    }
    const BlockTape& tape = problem.tapes[problem.blocks[b].tape];
    std::vector<int32_t> kept = block.saved;
    int64_t bytes = 0;
    for (int32_t s : block.moved) {
      bytes += tape.storages[s].bytes;
      if (tape.storages[s].kind == StorageKind::kBlockInput) {
        EXPECT_EQ(std::count(problem.blocks[b].held_inputs.begin(), problem.blocks[b].held_inputs.end(), s), 1);
        saved.back() -= tape.storages[s].bytes;
      } else {
        EXPECT_FALSE(tape.storages[s].held_anyway);
        EXPECT_EQ(std::count(kept.begin(), kept.end(), s), 0);
        kept.push_back(s);
      }
    }
    std::sort(kept.begin(), kept.end());
    const auto oracle = OracleEvaluate(tape, kept);
    ASSERT_TRUE(oracle.has_value());
    EXPECT_EQ(block.moved_bytes, bytes);
    EXPECT_NEAR(block.move_seconds, 2 * static_cast<double>(bytes) / problem.host_bytes_per_second, kTolerance);
    EXPECT_EQ(block.saved_bytes + block.moved_bytes - block.moved_input_bytes, oracle->bytes);
    EXPECT_NEAR(block.replay_seconds, oracle->seconds, kTolerance);
    EXPECT_EQ(block.own_peak_bytes, OracleOwnPeak(tape, problem.blocks[b], *oracle));
  }
  EXPECT_LE(on_host, problem.host_bytes_limit);
  EXPECT_EQ(plan.moved_bytes, on_host);
  EXPECT_NEAR(plan.replay_seconds + plan.move_seconds, seconds, kTolerance);
  EXPECT_EQ(plan.step_peak_bytes, OracleMovingStepPeak(problem, saved, moved, peaks));
}

// Some inputs are the block's alone, the host has some room, and its way costs about what replay does.
void AddHost(PlanningProblem& problem, std::mt19937_64& random) {
  for (BlockInstance& block : problem.blocks) {
    const std::vector<Storage>& storages = problem.tapes[block.tape].storages;
    for (size_t s = 0; s < storages.size(); ++s) {
      const bool may_be_held = storages[s].kind == StorageKind::kBlockInput && storages[s].bytes > 0;
      if (may_be_held && random() % 3 == 0) block.held_inputs.push_back(static_cast<int32_t>(s));
    }
  }
  problem.host_bytes_limit = 1 + static_cast<int64_t>(random() % 60);
  problem.host_bytes_per_second = static_cast<double>(1 + random() % 20);
}

TEST(RandomSteps, PlansWithMovesAreTheFastestOfAllCombinations) {
  int solved = 0, equal = 0, with_moves = 0, only_with_moves = 0, least = 0, problems = 0;
  double gaps = 0;
  for (int seed = 0, checked = 0; checked < Tapes() && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const int blocks = 1 + seed % 3;
    const int most_intermediates[] = {7, 5, 3};
    PlanningProblem problem = RandomProblem(random, blocks, 2 + seed / 3 % (most_intermediates[blocks - 1] - 1));
    AddHost(problem, random);
    std::vector<Enumeration> enumerations;
    for (const BlockTape& tape : problem.tapes) enumerations.emplace_back(tape);
    if (std::any_of(enumerations.begin(), enumerations.end(), [](const Enumeration& all) { return all.plans().empty(); })) continue;
    checked += static_cast<int>(problem.tapes.size());
    std::vector<std::vector<Way>> ways;
    for (const BlockInstance& block : problem.blocks) ways.push_back(BestMovingWays(problem, enumerations[block.tape], block));
    const std::vector<Combination> combinations = Combine(problem, ways);
    const int64_t least_peak = std::min_element(combinations.begin(), combinations.end(), [](const auto& a, const auto& b) {
                                 return a.peak < b.peak;
                               })->peak;
    ++problems;
    for (int i = 0; i < 3; ++i) {
      problem.memory_limit_bytes = combinations[random() % combinations.size()].peak;
      if (problem.memory_limit_bytes <= 0) continue;
      const auto plan = PlanStepClosely(problem, {.visits = 2'000'000, .gap_of_full_replay = 1e-4});
      ASSERT_TRUE(plan.ok()) << plan.status();
      ExpectTrue(problem, *plan);
      EXPECT_GE(plan->least_peak_bytes, least_peak);
      EXPECT_EQ(plan->feasible, problem.memory_limit_bytes >= plan->least_peak_bytes);
      least += i == 0 && plan->least_peak_bytes == least_peak;
      if (!plan->feasible) {
        EXPECT_EQ(plan->step_peak_bytes, plan->least_peak_bytes);
        continue;
      }
      double fastest = kInfinity;
      for (const Combination& combination : combinations) {
        if (combination.peak <= problem.memory_limit_bytes) fastest = std::min(fastest, combination.seconds);
      }
      ++solved;
      const double seconds = plan->replay_seconds + plan->move_seconds;
      EXPECT_LE(plan->step_peak_bytes, problem.memory_limit_bytes);
      EXPECT_GE(seconds, fastest - kTolerance);
      EXPECT_LE(plan->lower_bound_seconds, fastest + kTolerance);
      equal += seconds <= fastest + kTolerance;
      gaps += seconds - plan->lower_bound_seconds;
      with_moves += plan->moved_bytes > 0;
      // Room on the host never makes a plan slower.
      PlanningProblem without = problem;
      without.host_bytes_limit = 0;
      const auto kept = PlanStepClosely(without, {.visits = 2'000'000, .gap_of_full_replay = 1e-4});
      ASSERT_TRUE(kept.ok()) << kept.status();
      EXPECT_EQ(kept->moved_bytes, 0);
      if (kept->feasible) {
        EXPECT_LE(seconds, kept->replay_seconds + kTolerance);
      }
      only_with_moves += !kept->feasible;
    }
  }
  std::cout << solved << " step plans, " << equal << " equal to the best of all combinations, " << with_moves << " move values, "
            << only_with_moves << " keep a limit that none without moves does; " << least << " of " << problems
            << " least peaks are those of all combinations; mean gap " << gaps / solved << " s\n";
  EXPECT_GT(equal, solved * 97 / 100);
  EXPECT_GT(least, problems * 97 / 100);
  EXPECT_GT(with_moves, solved / 8);
  EXPECT_GT(only_with_moves, solved / 50);
}

}  // namespace
}  // namespace tidetape::planner
