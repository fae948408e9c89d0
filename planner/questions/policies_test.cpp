#include "planner/questions/policies.h"

#include <random>

#include "gtest/gtest.h"
#include "planner/planner.h"
#include "planner/testing/oracle.h"
#include "planner/testing/random_tape.h"

namespace tidetape::planner {
namespace {

// x -mm-> a -gelu-> b -mm-> c, all read by backward in reverse order.
PlanningProblem Layers(int blocks) {
  BlockTape tape{.name = "layer"};
  tape.storages = {{.bytes = 10, .kind = StorageKind::kBlockInput}, {.bytes = 10}, {.bytes = 20}, {.bytes = 40}};
  tape.ops = {{.name = "aten::mm", .cost_seconds = 8, .reads = {0}, .writes = {1}},
              {.name = "aten::gelu", .cost_seconds = 1, .reads = {1}, .writes = {2}},
              {.name = "aten::addmm", .cost_seconds = 100, .reads = {2}, .writes = {3}}};
  tape.consumed = {3, 2, 1};
  PlanningProblem problem;
  problem.tapes = {tape};
  for (int b = 0; b < blocks; ++b) problem.blocks.push_back({.name = std::to_string(b)});
  problem.memory_limit_bytes = kUnlimitedBytes;
  return problem;
}

std::vector<std::vector<int32_t>> SavedBy(const PlanningProblem& problem, Policy policy) {
  const auto plan = PlanByPolicy(problem, policy);
  EXPECT_TRUE(plan.ok()) << plan.status();
  std::vector<std::vector<int32_t>> saved;
  for (const BlockPlan& block : plan->blocks) saved.push_back(block.saved);
  return saved;
}

using Lists = std::vector<std::vector<int32_t>>;

TEST(PoliciesTest, SaveWhatTheirNamesSay) {
  PlanningProblem problem = Layers(3);
  EXPECT_EQ(SavedBy(problem, Policy::kFullCheckpoint), (Lists{{}, {}, {}}));
  EXPECT_EQ(SavedBy(problem, Policy::kEveryOtherBlock), (Lists{{}, {1, 2, 3}, {}}));
  EXPECT_EQ(SavedBy(problem, Policy::kKeepMatmuls), (Lists{{1, 3}, {1, 3}, {1, 3}}));
}

TEST(PoliciesTest, BudgetsTakeTheLargestShareThatKeepsTheLimit) {
  PlanningProblem problem = Layers(1);
  EXPECT_EQ(SavedBy(problem, Policy::kBytesOnlyBudget), (Lists{{1, 2, 3}}));
  // All that backward reads is there together in the end: the own peak is 70 whatever is saved.
  problem.tapes[0].backward = {{.reads = {3}, .releases = {3}}, {.reads = {2}, .releases = {2}}, {.reads = {1}, .releases = {1}}};
  problem.head_peak_bytes = 100;
  problem.memory_limit_bytes = 130;  // 30 bytes may be saved
  EXPECT_EQ(SavedBy(problem, Policy::kBytesOnlyBudget), (Lists{{1, 2}}));
  problem.memory_limit_bytes = 140;  // the addmm has the most seconds a byte, and then nothing fits
  EXPECT_EQ(SavedBy(problem, Policy::kAdditiveKnapsack), (Lists{{3}}));
}

// Whatever the tape, a policy's plan is one that an agent could follow, and never faster than the planner's at the same peak.
TEST(PoliciesTest, AreFollowableAndNoFasterThanTheBound) {
  int checked = 0;
  for (int seed = 0; checked < 200; ++seed) {
    std::mt19937_64 random(seed);
    PlanningProblem problem = RandomProblem(random, 1 + seed % 3, 3 + seed % 8);
    problem.memory_limit_bytes = 1 + static_cast<int64_t>(random() % 200);
    if (!PlanStep(problem).ok()) continue;
    ++checked;
    for (Policy policy : kPolicies) {
      const auto plan = PlanByPolicy(problem, policy);
      if (!plan.ok()) continue;  // what the policy saves leaves no plan
      for (size_t b = 0; b < plan->blocks.size(); ++b) {
        const BlockInstance& block = problem.blocks[b];
        if (block.options.empty()) {
          EXPECT_TRUE(OracleEvaluate(problem.tapes[block.tape], plan->blocks[b].saved).has_value());
        }
      }
      PlanningProblem same = problem;
      same.memory_limit_bytes = std::max<int64_t>(1, plan->step_peak_bytes);
      EXPECT_GE(plan->replay_seconds, PlanStep(same)->lower_bound_seconds - 1e-9);
    }
  }
}

TEST(PoliciesTest, MatmulsAreKnownByName) {
  for (const char* name : {"aten::mm", "aten::addmm", "aten::bmm", "aten::linear", "aten::convolution",
                           "aten::_scaled_dot_product_flash_attention_for_cpu"}) {
    EXPECT_TRUE(IsMatmul({.name = name})) << name;
  }
  for (const char* name : {"aten::mul", "aten::gelu", "aten::sum"}) EXPECT_FALSE(IsMatmul({.name = name})) << name;
}

}  // namespace
}  // namespace tidetape::planner
