// Plans that move values to the host, on problems small enough for a closed form.
#include "planner/step/step_moves.h"

#include <vector>

#include "gtest/gtest.h"
#include "planner/planner.h"
#include "planner/step/moving_bound.h"

namespace tidetape::planner {
namespace {

// Two executions of a block that makes 10 bytes in 5 s from an input of 4 bytes, which only they hold. A byte costs 0.1 s there and
// back.
PlanningProblem TwoBlocks() {
  BlockTape tape{.name = "block"};
  tape.storages = {{.bytes = 4, .kind = StorageKind::kBlockInput}, {.bytes = 10}};
  tape.ops = {{.name = "op", .cost_seconds = 5, .reads = {0}, .writes = {1}}};
  tape.consumed = {1};
  PlanningProblem problem;
  problem.tapes = {tape};
  problem.blocks = {{.name = "first", .held_inputs = {0}}, {.name = "second", .held_inputs = {0}}};
  problem.head_peak_bytes = 100;
  problem.host_bytes_limit = 1000;
  problem.host_bytes_per_second = 20;
  return problem;
}

StepPlan Solve(PlanningProblem problem, int64_t limit) {
  problem.memory_limit_bytes = limit;
  const auto plan = PlanStep(problem);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *plan;
}

TEST(StepMoves, ValuesMoveWhereThatCostsLessThanReplay) {
  const StepPlan plan = Solve(TwoBlocks(), 110);
  EXPECT_TRUE(plan.feasible);
  EXPECT_EQ(plan.moved_bytes, 10);
  EXPECT_DOUBLE_EQ(plan.move_seconds, 1);
  EXPECT_EQ(plan.replay_seconds, 0);
  EXPECT_DOUBLE_EQ(plan.lower_bound_seconds, 1);
  EXPECT_EQ(plan.step_peak_bytes, 110);
}

TEST(StepMoves, ReplayStaysWhereTheHostIsSlow) {
  PlanningProblem problem = TwoBlocks();
  problem.host_bytes_per_second = 2;  // 10 s for the 10 bytes
  const StepPlan plan = Solve(problem, 110);
  EXPECT_EQ(plan.moved_bytes, 0);
  EXPECT_EQ(plan.replay_seconds, 5);
}

TEST(StepMoves, TheHostsLimitHolds) {
  PlanningProblem problem = TwoBlocks();
  problem.host_bytes_limit = 9;
  const StepPlan plan = Solve(problem, 110);
  EXPECT_EQ(plan.moved_bytes, 0);
  EXPECT_EQ(plan.replay_seconds, 5);
  // 9 bytes at 0.1 s and one at 0.5 s.
  EXPECT_NEAR(plan.lower_bound_seconds, 0.9 + 0.5, 1e-3);
}

TEST(StepMoves, InputsMakeRoomBelowTheLeastThatIsMeasured) {
  const StepPlan plan = Solve(TwoBlocks(), 92);
  EXPECT_TRUE(plan.feasible);
  // Both inputs go: nothing else is in the head's 100 bytes.
  EXPECT_EQ(plan.step_peak_bytes, 92);
  EXPECT_EQ(plan.least_peak_bytes, 92);
  for (const BlockPlan& block : plan.blocks) {
    EXPECT_EQ(block.moved_input_bytes, 4);
    EXPECT_EQ(block.moved.front(), 0);
  }
  PlanningProblem others = TwoBlocks();
  others.blocks[0].held_inputs.clear();
  EXPECT_FALSE(Solve(others, 92).feasible);
  EXPECT_EQ(Solve(others, 96).blocks[1].moved_input_bytes, 4);
}

TEST(StepMoves, WhatComesBackIsThereInTheBackwardOfTheNextBlock) {
  PlanningProblem problem = TwoBlocks();
  for (BlockInstance& block : problem.blocks) block.held_inputs.clear();
  EXPECT_DOUBLE_EQ(SecondsOf(Solve(problem, 100)), 2);  // both move
  // The second block's own 10 bytes fit into its backward, the first one's do not.
  problem.blocks[1].backward_base_bytes = 85;
  const StepPlan plan = Solve(problem, 100);
  EXPECT_EQ(plan.blocks[0].moved_bytes, 0);
  EXPECT_EQ(plan.blocks[0].replay_seconds, 5);
  EXPECT_EQ(plan.blocks[1].moved_bytes, 10);
}

TEST(StepMoves, WhatMovesIsThereUntilItsForwardEnds) {
  PlanningProblem problem = TwoBlocks();
  for (BlockInstance& block : problem.blocks) block.held_inputs.clear();
  problem.blocks[0].forward_base_bytes = 91;
  const StepPlan plan = Solve(problem, 100);
  EXPECT_EQ(plan.blocks[0].replay_seconds, 5);
  EXPECT_EQ(plan.blocks[1].moved_bytes, 10);
}

TEST(StepMoves, AGivenPlanIsEvaluated) {
  PlanningProblem problem = TwoBlocks();
  problem.memory_limit_bytes = 100;
  const auto plan = EvaluatePlan(problem, {{1}, {}}, {{0}, {0, 1}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->step_peak_bytes, 102);
  EXPECT_FALSE(plan->feasible);
  EXPECT_EQ(plan->moved_bytes, 18);
  EXPECT_DOUBLE_EQ(plan->move_seconds, 1.8);
  EXPECT_EQ(EvaluatePlan(problem, {{1}, {1}}, {{}, {2}}).status().message(),
            "blocks[1] 'second': block 'block': the plan moves storage 2, but the tape has 2 storages");
  problem.host_bytes_limit = 17;
  EXPECT_FALSE(EvaluatePlan(problem, {{1}, {}}, {{0}, {0, 1}})->feasible);
  problem.host_bytes_limit = 0;
  EXPECT_EQ(EvaluatePlan(problem, {{1}, {}}, {{}, {1}}).status().message(),
            "the plan moves values, but the problem gives the host no room");
}

TEST(StepMoves, TheHullEndsInALineOfTheHostsPrice) {
  const std::vector<HullPoint> hull = {{100, 0}, {60, 4}, {20, 24}};
  const std::vector<HullPoint> moving = HullWithMoves(hull, 0.2, 5);
  ASSERT_EQ(moving.size(), 3);
  EXPECT_EQ(moving[1].bytes, 60);
  EXPECT_EQ(moving[2].bytes, -5);
  EXPECT_DOUBLE_EQ(moving[2].seconds, 4 + 0.2 * 65);
}

}  // namespace
}  // namespace tidetape::planner
