#include "server/questions/run_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidetape::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

planner::PlanningProblem WithLabels(const std::vector<std::string>& labels) {
  planner::PlanningProblem problem;
  planner::BlockTape& tape = problem.tapes.emplace_back();
  tape.storages.push_back({.kind = planner::StorageKind::kBlockInput, .label = "input [9, 9, 9] Float"});
  for (const std::string& label : labels) tape.storages.push_back({.label = label});
  problem.blocks.emplace_back();
  return problem;
}

TEST(RunSizes, TheFirstOpThatMakesAMatrixTells) {
  EXPECT_THAT(
      LeadingShape(WithLabels({"aten::sum#0 [7] Float", "aten::pow#0 [4, 256, 512] BFloat16", "aten::mm#0 [1024, 8] Float"})),
      ElementsAre(4, 256, 512));
  EXPECT_THAT(LeadingShape(WithLabels({"aten::mm#0 [1024, 8] Float"})), ElementsAre(1024, 8));
  EXPECT_THAT(LeadingShape(WithLabels({"aten::op1", "x [", "] y [", "aten::mm [a, 3] Float", "aten::mm [0, 3] Float"})), IsEmpty());
  EXPECT_THAT(LeadingShape(planner::PlanningProblem()), IsEmpty());
}

TEST(RunSizes, AxesHaveNames) {
  EXPECT_EQ(AxisName({4, 256, 512}, 0), "batch");
  EXPECT_EQ(AxisName({4, 256, 512}, 1), "sequence");
  EXPECT_EQ(AxisName({4, 256, 512}, 2), "");
  EXPECT_EQ(AxisName({1024, 8}, 0), "rows");
  EXPECT_EQ(AxisName({1024, 8}, 1), "");
  EXPECT_EQ(Tokens({4, 256, 512}), 1024);
  EXPECT_EQ(Tokens({1024, 8}), 1024);
}

TEST(RunSizes, ShapesOfOtherRanksDifferInAll) {
  EXPECT_THAT(Differences({4, 256}, {4, 256}), IsEmpty());
  EXPECT_THAT(Differences({4, 256}, {8, 256}), ElementsAre(0));
  EXPECT_THAT(Differences({4, 256}, {4, 256, 1}), ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace tidetape::server
