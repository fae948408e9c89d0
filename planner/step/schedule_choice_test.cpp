// Steps under a schedule, against all combinations of their blocks' options and a peak that is worked out here once more.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "planner/planner.h"

namespace tidetape::planner {
namespace {

using Random = std::mt19937_64;

// `micro_batches` run `layers` blocks each; block m * layers + l is layer l of micro-batch m.
PlanningProblem RandomProblem(Random& random, int micro_batches, int layers) {
  PlanningProblem problem;
  problem.head_peak_bytes = static_cast<int64_t>(random() % 100);
  problem.optimizer_peak_bytes = static_cast<int64_t>(random() % 100);
  for (int b = 0; b < micro_batches * layers; ++b) {
    BlockInstance& block = problem.blocks.emplace_back();
    block.name = "block " + std::to_string(b);
    block.forward_base_bytes = static_cast<int64_t>(random() % 60);
    block.backward_base_bytes = static_cast<int64_t>(random() % 60);
    const int options = 1 + static_cast<int>(random() % 4);
    for (int o = 0; o < options; ++o) {
      const auto saved = static_cast<int64_t>(random() % 50);
      block.options.push_back({.saved_bytes = saved,
                               .own_peak_bytes = saved + static_cast<int64_t>(random() % 60),
                               .seconds = 1e-3 * static_cast<double>(random() % 1000),
                               .label = ""});
    }
  }
  return problem;
}

void AddForwards(PlanningProblem& problem, int micro_batch, int layers) {
  for (int l = 0; l < layers; ++l) problem.schedule.push_back({Phase::kForward, micro_batch * layers + l});
}

void AddBackwards(PlanningProblem& problem, int micro_batch, int layers) {
  problem.schedule.push_back({Phase::kHead});
  for (int l = layers; l-- > 0;) problem.schedule.push_back({Phase::kBackward, micro_batch * layers + l});
}

// All micro-batches forward, then all backward in the same order.
PlanningProblem GPipe(Random& random, int micro_batches, int layers) {
  PlanningProblem problem = RandomProblem(random, micro_batches, layers);
  for (int m = 0; m < micro_batches; ++m) AddForwards(problem, m, layers);
  for (int m = 0; m < micro_batches; ++m) AddBackwards(problem, m, layers);
  return problem;
}

// One forward, one backward, with so many micro-batches alive at once.
PlanningProblem OneForwardOneBackward(Random& random, int micro_batches, int layers, int alive) {
  PlanningProblem problem = RandomProblem(random, micro_batches, layers);
  for (int m = 0; m < micro_batches + alive; ++m) {
    if (m >= alive) AddBackwards(problem, m - alive, layers);
    if (m < micro_batches) AddForwards(problem, m, layers);
  }
  return problem;
}

// Two chunks of the model on one rank: micro-batches pass one and then the other, as interleaved pipelines run them.
PlanningProblem Interleaved(Random& random, int micro_batches) {
  PlanningProblem problem = RandomProblem(random, micro_batches, 2);
  for (int chunk = 0; chunk < 2; ++chunk) {
    for (int m = 0; m < micro_batches; ++m) problem.schedule.push_back({Phase::kForward, 2 * m + chunk});
  }
  for (int chunk = 2; chunk-- > 0;) {
    for (int m = 0; m < micro_batches; ++m) problem.schedule.push_back({Phase::kBackward, 2 * m + chunk});
  }
  return problem;
}

// Any order in which forwards come before their backwards.
PlanningProblem AnyOrder(Random& random, int blocks) {
  PlanningProblem problem = RandomProblem(random, blocks, 1);
  std::vector<int> runs(blocks, 0);
  while (static_cast<int>(problem.schedule.size()) < 2 * blocks) {
    const auto b = static_cast<int32_t>(random() % blocks);
    if (runs[b] == 2) continue;
    problem.schedule.push_back({runs[b]++ == 0 ? Phase::kForward : Phase::kBackward, b});
  }
  return problem;
}

struct Outcome {
  int64_t peak_bytes = 0;
  double seconds = 0;
};

// The step's parts one after the other, with what is alive in each.
Outcome Run(const PlanningProblem& problem, const std::vector<int32_t>& options) {
  Outcome outcome{.peak_bytes = problem.optimizer_peak_bytes};
  std::vector<bool> alive(problem.blocks.size(), false);
  for (const ScheduledPart& part : problem.schedule) {
    int64_t bytes = problem.head_peak_bytes;
    if (part.phase == Phase::kForward) {
      bytes = problem.blocks[part.block].forward_base_bytes;
      alive[part.block] = true;
    }
    if (part.phase == Phase::kBackward) {
      const BlockInstance& block = problem.blocks[part.block];
      bytes = block.backward_base_bytes + block.options[options[part.block]].own_peak_bytes;
      alive[part.block] = false;
    }
    for (size_t b = 0; b < alive.size(); ++b) {
      if (alive[b]) bytes += problem.blocks[b].options[options[b]].saved_bytes;
    }
    outcome.peak_bytes = std::max(outcome.peak_bytes, bytes);
  }
  for (size_t b = 0; b < options.size(); ++b) outcome.seconds += problem.blocks[b].options[options[b]].seconds;
  return outcome;
}

std::vector<Outcome> RunAll(const PlanningProblem& problem) {
  std::vector<Outcome> outcomes;
  std::vector<int32_t> options(problem.blocks.size(), 0);
  while (true) {
    outcomes.push_back(Run(problem, options));
    size_t b = 0;
    while (b < options.size() && ++options[b] == static_cast<int32_t>(problem.blocks[b].options.size())) options[b++] = 0;
    if (b == options.size()) return outcomes;
  }
}

// At limits from the least peak to more than any plan needs.
void ExpectBest(PlanningProblem problem) {
  const std::vector<Outcome> outcomes = RunAll(problem);
  int64_t least = std::numeric_limits<int64_t>::max(), most = 0;
  for (const Outcome& outcome : outcomes) {
    least = std::min(least, outcome.peak_bytes);
    most = std::max(most, outcome.peak_bytes);
  }
  for (int i = 0; i <= 6; ++i) {
    problem.memory_limit_bytes = least + i * (most - least) / 5;
    double fastest = std::numeric_limits<double>::infinity();
    for (const Outcome& outcome : outcomes) {
      if (outcome.peak_bytes <= problem.memory_limit_bytes) fastest = std::min(fastest, outcome.seconds);
    }
    const auto plan = PlanStep(problem);
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::vector<int32_t> options;
    for (const BlockPlan& block : plan->blocks) options.push_back(block.option);
    const Outcome run = Run(problem, options);
    EXPECT_EQ(plan->step_peak_bytes, run.peak_bytes);
    EXPECT_NEAR(plan->replay_seconds, run.seconds, 1e-12);
    EXPECT_TRUE(plan->feasible);
    EXPECT_EQ(plan->least_peak_bytes, least);
    EXPECT_LE(plan->step_peak_bytes, problem.memory_limit_bytes);
    EXPECT_NEAR(plan->replay_seconds, fastest, 1e-12) << "limit " << i;
    EXPECT_LE(plan->lower_bound_seconds, fastest + 1e-12);
  }
}

TEST(Schedules, GPipe) {
  Random random(1);
  for (int i = 0; i < 60; ++i) ExpectBest(GPipe(random, 1 + i % 4, 1 + i % 2));
}

TEST(Schedules, OneForwardOneBackward) {
  Random random(2);
  for (int i = 0; i < 60; ++i) ExpectBest(OneForwardOneBackward(random, 2 + i % 5, 1 + i % 2 * (i % 5 < 2), 1 + i % 3));
}

TEST(Schedules, Interleaved) {
  Random random(3);
  for (int i = 0; i < 60; ++i) ExpectBest(Interleaved(random, 1 + i % 4));
}

TEST(Schedules, AnyOrder) {
  Random random(4);
  for (int i = 0; i < 200; ++i) ExpectBest(AnyOrder(random, 1 + i % 7));
}

// All forwards, the head, and all backwards in the opposite order, said as a schedule or not at all.
TEST(Schedules, TheUsualOrderIsTheSameWithAndWithoutOne) {
  Random random(5);
  for (int i = 0; i < 60; ++i) {
    PlanningProblem problem = RandomProblem(random, 1, 1 + i % 6);
    problem.memory_limit_bytes = 0;
    const int64_t least = PlanStep(problem)->step_peak_bytes;
    for (int k = 0; k < 4; ++k) {
      problem.schedule.clear();
      problem.memory_limit_bytes = least + 40 * k;
      const auto plain = PlanStep(problem);
      AddForwards(problem, 0, static_cast<int>(problem.blocks.size()));
      AddBackwards(problem, 0, static_cast<int>(problem.blocks.size()));
      const auto scheduled = PlanStep(problem);
      ASSERT_TRUE(plain.ok() && scheduled.ok());
      EXPECT_EQ(plain->least_peak_bytes, scheduled->least_peak_bytes);
      EXPECT_NEAR(plain->replay_seconds, scheduled->replay_seconds, 1e-12);
    }
  }
}

// Many micro-batches of equal layers: the plan is close to what the bound says of the best.
TEST(Schedules, ALongPipelineIsPlannedClosely) {
  Random random(6);
  constexpr int kLayers = 8, kMicroBatches = 16;
  PlanningProblem problem = OneForwardOneBackward(random, kMicroBatches, kLayers, 4);
  for (BlockInstance& block : problem.blocks) {
    block.options.clear();
    for (int o = 0; o < 12; ++o) {  // each further megabyte is worth less
      const int64_t saved = o * (1 << 20);
      block.options.push_back({.saved_bytes = saved, .own_peak_bytes = 12 << 20, .seconds = 1e-3 / (1 + o), .label = ""});
    }
  }
  double full = 0;
  for (const BlockInstance& block : problem.blocks) full += block.options.front().seconds;
  for (int64_t alive = 1; alive < 12; ++alive) {
    problem.memory_limit_bytes = (12 << 20) + 4 * kLayers * alive * (1 << 20) + 1000;  // and the bases
    const auto plan = PlanStep(problem);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_TRUE(plan->feasible);
    EXPECT_LE(plan->replay_seconds - plan->lower_bound_seconds, 0.002 * full) << alive;
  }
}

}  // namespace
}  // namespace tidetape::planner
