#include "planner/step/step_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "planner/step/step_bound.h"
#include "planner/step/step_memory.h"
#include "planner/tape/tape_plans.h"

namespace tidetape::planner {
namespace {

constexpr double kTolerance = 1e-9;

// Choices whose own peaks are known by bounds only, most of them.
struct Instance {
  PlanningProblem problem;
  Choices known, doubtful;  // the same ones, by rising bytes; ids are positions in `known`
  int learned = 0;

  LearnOwnPeak Learn() {
    return [this](size_t block, Choice& choice) {
      EXPECT_GT(choice.doubt_bytes, 0) << "what is known is asked for";
      choice.own_peak_bytes = known[block][choice.id].own_peak_bytes;
      choice.doubt_bytes = 0;
      ++learned;
    };
  }
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
    std::vector<Choice>& list = instance.known.emplace_back();
    for (int c = 1 + random() % 7; c > 0; --c) {
      list.push_back({static_cast<int64_t>(random() % 50), static_cast<int64_t>(random() % 80), 1e-3 * (random() % 1000)});
    }
    std::sort(list.begin(), list.end(), [](const Choice& x, const Choice& y) { return x.saved_bytes < y.saved_bytes; });
    for (size_t c = 0; c < list.size(); ++c) list[c].id = static_cast<int32_t>(c);
    std::vector<Choice>& doubtful = instance.doubtful.emplace_back(list);
    for (Choice& choice : doubtful) {
      if (random() % 4 == 0) continue;
      const auto above = static_cast<int64_t>(random() % 40);
      choice.own_peak_bytes += above;
      choice.doubt_bytes = above + static_cast<int64_t>(random() % 40);
    }
    KeepParetoChoices(doubtful);
  }
  return instance;
}

std::vector<BlockMemory> MemoryOf(const Instance& instance, const std::vector<int32_t>& ids) {
  std::vector<BlockMemory> memory;
  for (size_t b = 0; b < ids.size(); ++b) {
    memory.push_back({instance.known[b][ids[b]].saved_bytes, instance.known[b][ids[b]].own_peak_bytes});
  }
  return memory;
}

void ForEachCombination(const Instance& instance, const std::function<void(const std::vector<int32_t>& ids)>& visit) {
  std::vector<int32_t> ids(instance.known.size());
  const std::function<void(size_t)> descend = [&](size_t b) {
    if (b == ids.size()) return visit(ids);
    for (size_t c = 0; c < instance.known[b].size(); ++c) {
      ids[b] = static_cast<int32_t>(c);
      descend(b + 1);
    }
  };
  descend(0);
}

std::vector<int32_t> IdsOf(const Choices& choices, const std::vector<int32_t>& picks) {
  std::vector<int32_t> ids;
  for (size_t b = 0; b < picks.size(); ++b) ids.push_back(choices[b][picks[b]].id);
  return ids;
}

// The relaxation of the instance's step.
struct Relaxation {
  std::vector<std::vector<HullPoint>> hulls;
  StepBound bound;
};

std::optional<Relaxation> Relax(const Instance& instance, int64_t limit) {
  Relaxation relaxation;
  std::vector<BlockLeast> least;
  for (const std::vector<Choice>& list : instance.known) {
    std::vector<HullPoint> points;
    BlockLeast block{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::max()};
    for (const Choice& choice : list) {
      points.push_back({choice.saved_bytes, choice.seconds});
      block.saved_bytes = std::min(block.saved_bytes, choice.saved_bytes);
      block.own_peak_bytes = std::min(block.own_peak_bytes, choice.own_peak_bytes);
    }
    relaxation.hulls.push_back(LowerHull(std::move(points)));
    least.push_back(block);
  }
  const auto prefix_limits = PrefixLimits(instance.problem, least, limit);
  if (!prefix_limits.has_value()) return std::nullopt;
  std::vector<const std::vector<HullPoint>*> hulls;
  for (const auto& hull : relaxation.hulls) hulls.push_back(&hull);
  relaxation.bound = BoundStep(hulls, *prefix_limits);
  return relaxation;
}

double SecondsOfIds(const Instance& instance, const std::vector<int32_t>& ids) {
  double seconds = 0;
  for (size_t b = 0; b < ids.size(); ++b) seconds += instance.known[b][ids[b]].seconds;
  return seconds;
}

TEST(StepChoiceTest, PicksAreTheFastestOfAllCombinations) {
  int feasible = 0, infeasible = 0, better = 0;
  for (int seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    Instance instance = RandomInstance(random, 1 + seed % 4);
    const auto limit = static_cast<int64_t>(40 + random() % 200);
    double least = std::numeric_limits<double>::infinity();
    ForEachCombination(instance, [&](const std::vector<int32_t>& ids) {
      if (FindStepPeak(instance.problem, MemoryOf(instance, ids)).bytes > limit) return;
      least = std::min(least, SecondsOfIds(instance, ids));
    });
    const auto relaxation = Relax(instance, limit);
    if (!relaxation.has_value()) {
      EXPECT_EQ(least, std::numeric_limits<double>::infinity());
      continue;
    }
    EXPECT_LE(relaxation->bound.seconds, least + kTolerance);
    const auto quick = QuickPicks(instance.problem, instance.doubtful, limit, relaxation->bound, instance.Learn());
    ASSERT_EQ(quick.has_value(), least < std::numeric_limits<double>::infinity());
    ++(quick.has_value() ? feasible : infeasible);
    if (!quick.has_value()) continue;
    const auto check = [&](const std::vector<int32_t>& picks) {
      const std::vector<int32_t> ids = IdsOf(instance.doubtful, picks);
      EXPECT_LE(FindStepPeak(instance.problem, MemoryOf(instance, ids)).bytes, limit);
      return SecondsOfIds(instance, ids);
    };
    const double seconds = check(*quick);
    const auto best = BestPicks(instance.problem, instance.doubtful, limit, relaxation->bound, seconds, instance.Learn());
    EXPECT_NEAR(best.has_value() ? check(*best) : seconds, least, kTolerance);
    better += best.has_value();
  }
  EXPECT_GT(feasible, 500);
  EXPECT_GT(infeasible, 10);
  EXPECT_GT(better, 20);
}

TEST(StepChoiceTest, TheLeastStepIsThatOfAllCombinations) {
  for (int seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    Instance instance = RandomInstance(random, 1 + seed % 4);
    int64_t least = std::numeric_limits<int64_t>::max();
    ForEachCombination(instance, [&](const std::vector<int32_t>& ids) {
      least = std::min(least, FindStepPeak(instance.problem, MemoryOf(instance, ids)).bytes);
    });
    const LeastStep step = FindLeastStep(instance.problem, instance.doubtful, instance.Learn());
    EXPECT_EQ(step.peak.bytes, least);
    EXPECT_EQ(FindStepPeak(instance.problem, MemoryOf(instance, IdsOf(instance.doubtful, step.picks))).bytes, least);
  }
}

// Own peaks that no limit asks for are not found out.
TEST(StepChoiceTest, LearnsOnlyWhatTheLimitAsksFor) {
  std::mt19937_64 random(1);
  Instance instance = RandomInstance(random, 4);
  const auto relaxation = Relax(instance, 10'000);
  const auto picks = QuickPicks(instance.problem, instance.doubtful, 10'000, relaxation->bound, instance.Learn());
  ASSERT_TRUE(picks.has_value());
  EXPECT_EQ(instance.learned, 0);
}

// By duality: the bound's seconds and the excess of each block are no more than any step plan under the limit takes.
TEST(StepBoundTest, ExcessAddsToTheBound) {
  int binding = 0;
  for (int seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const Instance instance = RandomInstance(random, 1 + seed % 4);
    const auto limit = static_cast<int64_t>(60 + random() % 150);
    const auto relaxation = Relax(instance, limit);
    if (!relaxation.has_value()) continue;
    const StepBound& bound = relaxation->bound;
    binding += bound.byte_prices[0] > 0;
    ForEachCombination(instance, [&](const std::vector<int32_t>& ids) {
      double excess = 0;
      for (size_t b = 0; b < ids.size(); ++b) {
        const Choice& choice = instance.known[b][ids[b]];
        const double of_block = ExcessSeconds(bound, b, choice.saved_bytes, choice.seconds);
        EXPECT_GE(of_block, -kTolerance);
        excess += of_block;
      }
      if (FindStepPeak(instance.problem, MemoryOf(instance, ids)).bytes > limit) return;
      EXPECT_GE(SecondsOfIds(instance, ids), bound.seconds + excess - kTolerance);
    });
  }
  EXPECT_GT(binding, 50);
}

}  // namespace
}  // namespace tidetape::planner
