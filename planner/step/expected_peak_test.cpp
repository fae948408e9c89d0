#include "planner/step/expected_peak.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "planner/planner.h"

namespace tidetape::planner {
namespace {

// A chain: each op makes a storage of its own from the one before, backward reads them all.
BlockTape ChainTape(const std::vector<int64_t>& bytes) {
  BlockTape tape;
  tape.name = "chain";
  tape.storages.push_back({.bytes = 10, .kind = StorageKind::kBlockInput});
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto made = static_cast<int32_t>(i + 1);
    tape.storages.push_back({.bytes = bytes[i]});
    tape.ops.push_back({.name = "op", .cost_seconds = 1, .reads = {made - 1}, .writes = {made}});
    tape.consumed.push_back(made);
  }
  return tape;
}

PlanningProblem TwoBlocks(const std::vector<BlockTape>& tapes) {
  PlanningProblem problem;
  problem.tapes = tapes;
  for (int32_t b = 0; b < 2; ++b) {
    BlockInstance& block = problem.blocks.emplace_back();
    block.name = "block" + std::to_string(b);
    block.tape = std::min(b, static_cast<int32_t>(tapes.size()) - 1);
    block.forward_base_bytes = 300;
    block.backward_base_bytes = 300;
    block.backward_transient_bytes = 50;
  }
  problem.head_peak_bytes = 320;
  problem.optimizer_peak_bytes = 200;
  problem.memory_limit_bytes = kUnlimitedBytes;
  return problem;
}

StepPlan Plan(const PlanningProblem& problem) {
  auto plan = PlanStep(problem);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

TEST(ExpectedPeak, IsTheStepPeakWhereNothingIsHeldFreeAndSizesAreEqual) {
  for (const int64_t limit : {int64_t{0}, int64_t{420}, int64_t{480}, kUnlimitedBytes}) {
    PlanningProblem problem = TwoBlocks({ChainTape({40, 30})});
    problem.memory_limit_bytes = limit;
    const StepPlan plan = Plan(problem);
    EXPECT_EQ(plan.expected_peak_bytes, plan.step_peak_bytes) << limit;
  }
}

// Everything is kept, 70 bytes a block: the last backward holds the peak with 300 + 70 + 70 + 50 = 490 bytes.
TEST(ExpectedPeak, LeavesOutWhatIsHeldFree) {
  PlanningProblem problem = TwoBlocks({ChainTape({40, 30})});
  EXPECT_EQ(Plan(problem).expected_peak_bytes, 490);
  problem.headroom.block_bytes = 20;
  EXPECT_EQ(Plan(problem).step_peak_bytes, 490);
  EXPECT_EQ(Plan(problem).expected_peak_bytes, 470);
  // From here on the head holds the expected peak, with 320 + 140.
  problem.headroom.block_bytes = 100;
  EXPECT_EQ(Plan(problem).expected_peak_bytes, 460);
  problem.headroom.head_bytes = 25;
  EXPECT_EQ(Plan(problem).expected_peak_bytes, 435);
  problem.headroom.head_bytes = 320;
  EXPECT_EQ(Plan(problem).expected_peak_bytes, 390);
  problem.optimizer_peak_bytes = 500;
  problem.headroom.optimizer_bytes = 60;
  EXPECT_EQ(Plan(problem).step_peak_bytes, 500);
  EXPECT_EQ(Plan(problem).expected_peak_bytes, 440);
}

TEST(ExpectedPeak, TheLimitHoldsWithWhatIsHeldFree) {
  PlanningProblem problem = TwoBlocks({ChainTape({40, 30})});
  problem.headroom.block_bytes = 100;
  problem.memory_limit_bytes = 450;
  const StepPlan plan = Plan(problem);
  EXPECT_TRUE(plan.feasible);
  EXPECT_LE(plan.step_peak_bytes, 450);
  EXPECT_LT(plan.saved_bytes, 140);
}

// The forward of the last block holds the peak. Its bytes op by op: what is alive without the plan, and what the plan saves of what
// no later op reads or writes.
TEST(ExpectedPeak, CountsInAForwardWhatIsAliveAtItsPeak) {
  std::mt19937_64 random(4);
  const auto draw = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random); };
  for (int round = 0; round < 300; ++round) {
    const auto ops = static_cast<size_t>(1 + draw(6));
    BlockTape tape = ChainTape(std::vector<int64_t>(ops));
    for (size_t i = 0; i < ops; ++i) {
      tape.storages[i + 1].bytes = draw(90);
      tape.storages[i + 1].held_anyway = draw(6) == 0;
      if (i > 0 && draw(2) == 0) tape.ops[i].reads.push_back(static_cast<int32_t>(1 + draw(static_cast<int64_t>(i) - 1)));
      tape.forward_slack_bytes.push_back(draw(80));
    }
    tape.forward_slack_bytes[static_cast<size_t>(draw(static_cast<int64_t>(ops) - 1))] = 0;
    PlanningProblem problem = TwoBlocks({tape});
    for (BlockInstance& block : problem.blocks) block.forward_base_bytes = 5000;
    problem.memory_limit_bytes = 5000 + draw(800);
    const StepPlan plan = Plan(problem);

    int64_t most = 0, saved_before = 0;
    for (const BlockPlan& block : plan.blocks) {
      for (size_t i = 0; i < ops; ++i) {
        int64_t alive = 5000 + saved_before - tape.forward_slack_bytes[i];
        for (const int32_t s : block.saved) {
          const auto needs = [s](const Op& op) {
            return std::count(op.reads.begin(), op.reads.end(), s) + std::count(op.writes.begin(), op.writes.end(), s) > 0;
          };
          const bool made = static_cast<size_t>(s) <= i;
          const bool needed = std::any_of(tape.ops.begin() + static_cast<int64_t>(i), tape.ops.end(), needs);
          if (made && !needed && !tape.storages[s].held_anyway) alive += tape.storages[s].bytes;
        }
        most = std::max(most, alive);
      }
      saved_before += block.saved_bytes;
    }
    EXPECT_EQ(plan.expected_peak_bytes, most) << round;
    EXPECT_LE(plan.expected_peak_bytes, plan.step_peak_bytes);
  }
}

// In each step that was seen, the plan would reach what the same plan reaches on tapes where what it saves has that step's sizes.
TEST(ExpectedPeak, IsTheLargestOfTheStepsThatWereSeen) {
  std::mt19937_64 random(3);
  const auto draw = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random); };
  for (int round = 0; round < 200; ++round) {
    const auto storages = static_cast<size_t>(1 + draw(4));
    // The tapes may have seen different numbers of steps: the newest count.
    std::vector<size_t> steps = {static_cast<size_t>(1 + draw(5)), static_cast<size_t>(draw(5))};
    std::vector<BlockTape> tapes;
    for (int t = 0; t < 2; ++t) {
      std::vector<int64_t> bytes;
      for (size_t s = 0; s < storages; ++s) bytes.push_back(draw(60));
      tapes.push_back(ChainTape(bytes));
      for (Storage& storage : tapes[t].storages) {
        for (size_t i = 0; i < steps[t]; ++i) storage.sampled_bytes.push_back(draw(60));
      }
    }
    PlanningProblem problem = TwoBlocks(tapes);
    problem.memory_limit_bytes = 300 + draw(300);
    problem.headroom = {.block_bytes = draw(50), .head_bytes = draw(50), .optimizer_bytes = draw(50)};
    const StepPlan plan = Plan(problem);

    const size_t common = steps[1] == 0 ? steps[0] : std::min(steps[0], steps[1]);
    int64_t most = 0;
    for (size_t i = 0; i < common; ++i) {
      PlanningProblem seen = problem;
      seen.memory_limit_bytes = kUnlimitedBytes;
      for (size_t t = 0; t < 2; ++t) {
        std::vector<Storage>& storages_seen = seen.tapes[t].storages;
        // What is replayed counts with its planned size.
        for (const int32_t saved : plan.blocks[t].saved) {
          if (steps[t] > 0) storages_seen[saved].bytes = storages_seen[saved].sampled_bytes[steps[t] - common + i];
        }
        for (Storage& storage : storages_seen) storage.sampled_bytes.clear();
      }
      seen.head_peak_bytes -= seen.headroom.head_bytes;
      seen.optimizer_peak_bytes -= seen.headroom.optimizer_bytes;
      for (BlockInstance& block : seen.blocks) {
        block.forward_base_bytes -= seen.headroom.block_bytes;
        block.backward_base_bytes -= seen.headroom.block_bytes;
      }
      seen.headroom = {};
      const auto reached = EvaluatePlan(seen, {plan.blocks[0].saved, plan.blocks[1].saved});
      ASSERT_TRUE(reached.ok()) << reached.status();
      most = std::max(most, reached->step_peak_bytes);
    }
    EXPECT_EQ(plan.expected_peak_bytes, most) << round;
  }
}

}  // namespace
}  // namespace tidetape::planner
