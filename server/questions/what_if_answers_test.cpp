#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/error_info.h"
#include "server/questions/job_queries.h"
#include "server/testing/planned_example.h"

namespace tidetape::server {
namespace {

using testing::HasSubstr;

TimeLeft Plenty() {
  return [] { return absl::Minutes(1); };
}

TimeLeft None() {
  return [] { return absl::ZeroDuration(); };
}

class WhatIfTest : public testing::Test {
 protected:
  WhatIfTest() { example_.Plan(); }

  Job& job() { return *example_.job(); }

  PlannedExample example_;
};

TEST_F(WhatIfTest, RivalsStandBesideThePlanAtTheirPeak) {
  const auto answer = AnswerComparePolicies(job(), v1::ComparePoliciesRequest(), Plenty());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->memory_limit_bytes(), 1300);
  ASSERT_EQ(answer->policies_size(), 5);
  // Nothing saved: each block replays 11 ms and reaches 200 bytes above its base of 900.
  const v1::PolicyOutcome& full = answer->policies(0);
  EXPECT_EQ(full.policy(), "full checkpoint");
  EXPECT_EQ(full.step_peak_bytes(), 1100);
  EXPECT_DOUBLE_EQ(full.replay_seconds(), 0.022);
  EXPECT_TRUE(full.keeps_limit());
  // Within 1100 the planner keeps what 10 ms made in the last block, which is first in backward.
  EXPECT_DOUBLE_EQ(full.planned_seconds(), 0.012);
  for (const v1::PolicyOutcome& outcome : answer->policies()) {
    EXPECT_LE(outcome.planned_seconds(), outcome.replay_seconds() + 1e-12) << outcome.policy();
  }
}

TEST_F(WhatIfTest, RivalsAreJudgedUnderAnotherLimit) {
  v1::ComparePoliciesRequest request;
  request.set_memory_limit_bytes(1050);
  const auto answer = AnswerComparePolicies(job(), request, Plenty());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_FALSE(answer->policies(0).keeps_limit());
  request.set_memory_limit_bytes(-2);
  EXPECT_TRUE(absl::IsInvalidArgument(AnswerComparePolicies(job(), request, Plenty()).status()));
}

TEST_F(WhatIfTest, WhoDoesNotWaitGetsNoAnswer) {
  EXPECT_TRUE(absl::IsDeadlineExceeded(AnswerComparePolicies(job(), v1::ComparePoliciesRequest(), None()).status()));
}

v1::PricePinsRequest Pin(const std::string& labels, const std::string& blocks, v1::Action action) {
  v1::PricePinsRequest request;
  v1::Pin* pin = request.add_pins();
  pin->set_label_glob(labels);
  pin->set_block_glob(blocks);
  pin->set_action(action);
  return request;
}

TEST_F(WhatIfTest, APinHasItsPrice) {
  const auto answer = AnswerPricePins(job(), Pin("aten::op1", "layers.0", v1::ACTION_REPLAY), Plenty());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->pinned_values(), 1);
  EXPECT_DOUBLE_EQ(answer->without().replay_seconds(), 0.001);
  EXPECT_DOUBLE_EQ(answer->with().replay_seconds(), 0.010);
  EXPECT_EQ(answer->with().step_peak_bytes(), 1300);
  EXPECT_EQ(answer->with().generation(), 0);
  // Nothing was changed.
  EXPECT_EQ(job().constraints().pins_size(), 0);
  EXPECT_EQ(job().committed()->generation(), 1);
}

TEST_F(WhatIfTest, APinUnderAnotherLimit) {
  v1::PricePinsRequest request = Pin("*", "*", v1::ACTION_SAVE);
  request.set_memory_limit_bytes(1200);
  const auto answer = AnswerPricePins(job(), request, Plenty());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->pinned_values(), 4);
  EXPECT_FALSE(answer->with().feasible());
  EXPECT_EQ(answer->with().step_peak_bytes(), 1400);
  EXPECT_DOUBLE_EQ(answer->without().replay_seconds(), 0.002);
}

TEST_F(WhatIfTest, APinThatFitsNothingIsRefused) {
  const auto answer = AnswerPricePins(job(), Pin("aten::none", "", v1::ACTION_SAVE), Plenty());
  EXPECT_TRUE(absl::IsInvalidArgument(answer.status()));
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr("'aten::none'"));
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr("labels look like 'aten::op1'"));
  EXPECT_TRUE(absl::IsInvalidArgument(AnswerPricePins(job(), v1::PricePinsRequest(), Plenty()).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(AnswerPricePins(job(), Pin("", "", v1::ACTION_SAVE), Plenty()).status()));
}

TEST_F(WhatIfTest, TheFastestPlanOfABlockWithinBytes) {
  v1::FindBlockPlanRequest request;
  request.set_block(1);
  request.set_saved_bytes_limit(150);
  const auto answer = AnswerFindBlockPlan(job(), request, Plenty());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->point().bytes(), 100);
  EXPECT_THAT(answer->point().saved(), testing::ElementsAre(1));
  EXPECT_DOUBLE_EQ(answer->point().replay_seconds(), 0.001);
  EXPECT_LE(answer->lower_bound_seconds(), 0.001);
  request.set_saved_bytes_limit(50);
  EXPECT_DOUBLE_EQ(AnswerFindBlockPlan(job(), request, Plenty())->point().replay_seconds(), 0.011);
  request.set_block(2);
  EXPECT_THAT(std::string(AnswerFindBlockPlan(job(), request, Plenty()).status().message()), HasSubstr("use 0 to 1"));
}

TEST_F(WhatIfTest, EffortMustMakeSense) {
  v1::SimulatePlanRequest request;
  request.mutable_effort()->set_visits(-1);
  EXPECT_TRUE(absl::IsInvalidArgument(AnswerSimulatePlan(job(), request, Plenty()).status()));
  request.mutable_effort()->set_visits(1'000'000);
  const auto answer = AnswerSimulatePlan(job(), request, Plenty());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_DOUBLE_EQ(answer->plan().lower_bound_seconds(), 0.001);
}

TEST(WhatIf, NothingIsToldBeforeAnythingIsMeasured) {
  PlannedExample example;
  EXPECT_TRUE(absl::IsFailedPrecondition(AnswerComparePolicies(*example.job(), v1::ComparePoliciesRequest(), Plenty()).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(AnswerPricePins(*example.job(), Pin("*", "*", v1::ACTION_SAVE), Plenty()).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(AnswerFindBlockPlan(*example.job(), v1::FindBlockPlanRequest(), Plenty()).status()));
}

}  // namespace
}  // namespace tidetape::server
