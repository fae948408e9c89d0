#include "planner/job/replan_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace tidetape::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kLimit = 1500;
const std::vector<uint64_t> kHashes = {7};

// One block of two ops in a row over a base; both results are read by backward.
PlanningProblem Problem(int64_t base, double seconds = 0.010, int64_t limit = kLimit) {
  PlanningProblem problem;
  problem.memory_limit_bytes = limit;
  BlockTape& tape = problem.tapes.emplace_back();
  tape.name = "layers.0";
  tape.structure_hash = 7;
  tape.storages.resize(3);
  tape.storages[0].kind = StorageKind::kBlockInput;
  tape.storages[1].bytes = 200;
  tape.storages[2].bytes = 300;
  for (int32_t i = 0; i < 2; ++i) {
    Op& op = tape.ops.emplace_back();
    op.name = "aten::mm";
    op.reads = {i};
    op.writes = {i + 1};
    op.cost_seconds = seconds;
  }
  tape.consumed = {1, 2};
  BlockInstance& instance = problem.blocks.emplace_back();
  instance.name = "layers.0";
  instance.forward_base_bytes = base;
  instance.backward_base_bytes = base;
  problem.head_peak_bytes = base;
  problem.optimizer_peak_bytes = base;
  return problem;
}

class ReplanPolicyTest : public ::testing::Test {
 protected:
  // Nothing saved: the step's peak is base + 500 in backward, replay takes twice `seconds`.
  void FollowNothingSaved(const PlanningProblem& problem) {
    auto plan = EvaluatePlan(problem, {{}});
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_EQ(plan->step_peak_bytes, problem.blocks[0].backward_base_bytes + 500);
    policy_.Follow(problem, kHashes, *plan);
  }

  std::string Reason(const PlanningProblem& problem, const std::vector<uint64_t>& hashes = kHashes) {
    const auto reason = policy_.ReasonToReplan(problem, hashes);
    EXPECT_TRUE(reason.ok()) << reason.status();
    return reason.ok() ? reason->text : "";
  }

  ReplanPolicy policy_;
};

TEST_F(ReplanPolicyTest, TheFirstPlanAndAChangedJobNeedAPlan) {
  EXPECT_THAT(Reason(Problem(900)), HasSubstr("first plan"));
  FollowNothingSaved(Problem(900));
  EXPECT_THAT(Reason(Problem(900)), IsEmpty());
  EXPECT_THAT(Reason(Problem(900, 0.010, 1600)), HasSubstr("from 1500 bytes to 1600 bytes"));
  EXPECT_THAT(Reason(Problem(900, 0.010, 0)), HasSubstr("to least memory"));
  EXPECT_THAT(Reason(Problem(900, 0.010, kUnlimitedBytes)), HasSubstr("to keep everything"));
  EXPECT_THAT(Reason(Problem(900), {8}), HasSubstr("blocks of the step changed"));
}

TEST_F(ReplanPolicyTest, ABrokenLimitIsActedOnAtOnce) {
  FollowNothingSaved(Problem(990));
  EXPECT_THAT(Reason(Problem(1000)), IsEmpty());  // 1500 bytes
  EXPECT_THAT(Reason(Problem(1001)), HasSubstr("would reach 1501 bytes"));
}

TEST_F(ReplanPolicyTest, APredictionThatIsOffIsActedOnOnceItIsSure) {
  FollowNothingSaved(Problem(900));  // 1400 bytes; 2 % are 28
  for (int i = 0; i < 10; ++i) EXPECT_THAT(Reason(Problem(873)), IsEmpty());
  EXPECT_THAT(Reason(Problem(871)), IsEmpty());
  EXPECT_THAT(Reason(Problem(871)), HasSubstr("1371 bytes, -2.1 %: the "));
  FollowNothingSaved(Problem(900));
  EXPECT_THAT(Reason(Problem(929)), IsEmpty());
  EXPECT_THAT(Reason(Problem(929)), HasSubstr("+2.1 %"));
}

TEST_F(ReplanPolicyTest, AStepThatGoesBackAndForthKeepsItsPlan) {
  FollowNothingSaved(Problem(900));
  for (int i = 0; i < 100; ++i) EXPECT_THAT(Reason(Problem(i % 2 == 0 ? 600 : 900)), IsEmpty());
  for (int i = 0; i < 100; ++i) EXPECT_THAT(Reason(Problem(900, i % 2 == 0 ? 0.020 : 0.010)), IsEmpty());
}

TEST_F(ReplanPolicyTest, ReplayTimeCountsFromAFifthOn) {
  FollowNothingSaved(Problem(900, 0.010));
  for (int i = 0; i < 10; ++i) EXPECT_THAT(Reason(Problem(900, 0.0119)), IsEmpty());
  EXPECT_THAT(Reason(Problem(900, 0.0121)), IsEmpty());
  EXPECT_THAT(Reason(Problem(900, 0.0121)), HasSubstr("aten::mm takes 0.024200 s a step instead of 0.020000 s"));
}

TEST_F(ReplanPolicyTest, ASlowerMachineKeepsTheBestPlan) {
  // 300 bytes fit above the base: the larger storage is kept, the other op is replayed.
  const PlanningProblem problem = Problem(1000);
  auto plan = PlanStep(problem);
  ASSERT_TRUE(plan.ok()) << plan.status();
  policy_.Follow(problem, kHashes, *plan);
  for (int i = 0; i < 10; ++i) EXPECT_THAT(Reason(Problem(1000, 0.030)), IsEmpty());
}

TEST_F(ReplanPolicyTest, AnInfeasibleLimitIsNotPlannedForAgainAndAgain) {
  const PlanningProblem problem = Problem(2000);
  auto plan = PlanStep(problem);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_FALSE(plan->feasible);
  policy_.Follow(problem, kHashes, *plan);
  for (int i = 0; i < 10; ++i) EXPECT_THAT(Reason(Problem(2000 + i)), IsEmpty());
}

TEST_F(ReplanPolicyTest, FollowsABlockWithOptions) {
  PlanningProblem problem = Problem(1000);
  problem.tapes.clear();
  problem.blocks[0].options = {{0, 300, 0.010, "lean"}, {200, 320, 0, "fast"}};
  const auto plan = PlanStep(problem);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->blocks[0].option, 1);
  policy_.Follow(problem, kHashes, *plan);
  EXPECT_THAT(Reason(problem), IsEmpty());
  problem.blocks[0].options[1].own_peak_bytes = 900;
  EXPECT_THAT(Reason(problem), HasSubstr("would reach 1900 bytes"));
}

TEST_F(ReplanPolicyTest, OptionsThatAreSlowerAreNamed) {
  PlanningProblem problem = Problem(1000);
  problem.tapes.clear();
  problem.blocks[0].options = {{0, 300, 0.020, "lean"}, {100, 310, 0.010, "half"}, {900, 910, 0, "fast"}};
  const auto plan = PlanStep(problem);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->blocks[0].option, 1);
  policy_.Follow(problem, kHashes, *plan);
  problem.blocks[0].options[1].seconds = 0.050;
  EXPECT_THAT(Reason(problem), IsEmpty());
  EXPECT_THAT(Reason(problem), HasSubstr("'half' takes 0.050000 s a step instead of 0.010000 s"));
}

}  // namespace
}  // namespace tidetape::planner
