#include "planner/job/site_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidetape::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A parameter (site 100), then intermediates with sites 103, 102, 101; backward reads all but the last.
PlanningProblem MakeProblem(int64_t limit) {
  PlanningProblem problem;
  problem.memory_limit_bytes = limit;
  BlockTape& tape = problem.tapes.emplace_back();
  tape.storages.resize(4);
  tape.storages[0].kind = StorageKind::kParameter;
  for (int i = 0; i < 4; ++i) tape.storages[i].site = i == 0 ? 100 : 104 - i;
  tape.consumed = {2, 1, 0};
  problem.blocks.resize(1);
  problem.blocks[0].name = "layers.0";
  return problem;
}

StepPlan MakePlan(std::vector<int32_t> saved, std::vector<int32_t> moved = {}) {
  StepPlan plan;
  plan.blocks.resize(1);
  plan.blocks[0].saved = std::move(saved);
  plan.blocks[0].moved = std::move(moved);
  return plan;
}

TEST(NameBySites, ListsWhatIsSavedUnderALimit) {
  const auto named = NameBySites(MakeProblem(1000), MakePlan({1, 3}, {2}));
  ASSERT_EQ(named.size(), 1u);
  EXPECT_EQ(named[0].default_action, Action::kReplay);
  EXPECT_THAT(named[0].sites,
              ElementsAre(SiteAction{101, Action::kSave}, SiteAction{102, Action::kMove}, SiteAction{103, Action::kSave}));
}

TEST(NameBySites, AParameterIsNeverNamed) { EXPECT_THAT(NameBySites(MakeProblem(1000), MakePlan({0}))[0].sites, IsEmpty()); }

TEST(NameBySites, AStorageWithoutASiteIsNotListed) {
  PlanningProblem problem = MakeProblem(1000);
  problem.tapes[0].storages[1].site = 0;
  EXPECT_THAT(NameBySites(problem, MakePlan({1, 3}))[0].sites, ElementsAre(SiteAction{101, Action::kSave}));
}

TEST(NameBySites, KeepEverythingSavesByDefaultAndNamesExceptions) {
  auto named = NameBySites(MakeProblem(kUnlimitedBytes), MakePlan({1, 2}));
  EXPECT_EQ(named[0].default_action, Action::kSave);
  EXPECT_THAT(named[0].sites, IsEmpty());
  // Storage 1 must be recomputed; storage 3 is not read by backward and needs no word.
  named = NameBySites(MakeProblem(kUnlimitedBytes), MakePlan({2}));
  EXPECT_THAT(named[0].sites, ElementsAre(SiteAction{103, Action::kReplay}));
}

TEST(NameBySites, LeastMemoryReplaysByDefault) {
  const auto named = NameBySites(MakeProblem(0), MakePlan({}));
  EXPECT_EQ(named[0].default_action, Action::kReplay);
  EXPECT_THAT(named[0].sites, IsEmpty());
}

TEST(NameBySites, ABlockWithOptionsHasNoSites) {
  PlanningProblem problem = MakeProblem(1000);
  problem.tapes.clear();
  problem.blocks[0].options.resize(2);
  StepPlan plan = MakePlan({});
  plan.blocks[0].option = 1;
  EXPECT_THAT(NameBySites(problem, plan)[0].sites, IsEmpty());
}

TEST(PlanEtag, EqualForEqualPlansOnly) {
  const PlanningProblem problem = MakeProblem(1000);
  const std::string etag = PlanEtag(problem, MakePlan({1}), {7});
  EXPECT_EQ(etag.size(), 16u);
  EXPECT_EQ(etag, PlanEtag(problem, MakePlan({1}), {7}));
  EXPECT_NE(etag, PlanEtag(problem, MakePlan({2}), {7}));
  EXPECT_NE(etag, PlanEtag(problem, MakePlan({1}), {8}));
  EXPECT_NE(etag, PlanEtag(MakeProblem(1001), MakePlan({1}), {7}));
  StepPlan slower = MakePlan({1});
  slower.replay_seconds = 1e-6;
  EXPECT_NE(etag, PlanEtag(problem, slower, {7}));
}

TEST(DescribePeakHolder, NamesPhaseAndBlock) {
  const PlanningProblem problem = MakeProblem(0);
  EXPECT_EQ(DescribePeakHolder(problem, {Phase::kBackward, 0}), "backward of layers.0");
  EXPECT_EQ(DescribePeakHolder(problem, {Phase::kForward, 0}), "forward of layers.0");
  EXPECT_EQ(DescribePeakHolder(problem, {Phase::kHead, -1}), "head");
  EXPECT_EQ(DescribePeakHolder(problem, {Phase::kOptimizer, -1}), "optimizer");
}

}  // namespace
}  // namespace tidetape::planner
