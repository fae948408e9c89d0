#include "server/http/job_insights.h"

#include <gtest/gtest.h>

#include <deque>

#include "server/testing/planned_example.h"

namespace tidetape::server {
namespace {

class JobInsightsTest : public testing::Test {
 protected:
  JobInsightsTest() { example_.Plan(); }

  std::shared_ptr<JobInsights> Make(JobInsights::Options options = {}) {
    options.patience = absl::ZeroDuration();
    return std::make_shared<JobInsights>(options, &example_.clock(), [this](std::function<void()> task) {
      if (refuse_) return false;
      tasks_.push_back(std::move(task));
      return true;
    });
  }

  void RunTask() {
    tasks_.front()();
    tasks_.pop_front();
  }

  PlannedExample example_;
  std::deque<std::function<void()>> tasks_;
  bool refuse_ = false;
};

TEST_F(JobInsightsTest, TellsWhatThePlannerKnows) {
  const auto insights = Make();
  EXPECT_EQ(insights->Get(example_.job()), nullptr);
  RunTask();
  const auto insight = insights->Get(example_.job());
  ASSERT_NE(insight, nullptr);
  EXPECT_EQ(insight->generation, 1);
  EXPECT_EQ(insight->frontier->largest_peak_bytes(), 1400);
  EXPECT_EQ(insight->memory->intervals_size(), 6);
  EXPECT_EQ(insight->explanation->blocks_size(), 2);
}

TEST_F(JobInsightsTest, ManyWhoAskCostOnePlan) {
  const auto insights = Make();
  for (int i = 0; i < 5; ++i) insights->Get(example_.job());
  EXPECT_EQ(tasks_.size(), 1);
  RunTask();
  for (int i = 0; i < 5; ++i) insights->Get(example_.job());
  EXPECT_TRUE(tasks_.empty());
}

TEST_F(JobInsightsTest, AnOldOneIsShownWhileANewOneIsUnderWay) {
  const auto insights = Make({.fresh = absl::Seconds(30)});
  insights->Get(example_.job());
  RunTask();
  const auto first = insights->Get(example_.job());
  example_.clock().Advance(absl::Seconds(31));
  EXPECT_EQ(insights->Get(example_.job()), first);
  ASSERT_EQ(tasks_.size(), 1);
  RunTask();
  EXPECT_NE(insights->Get(example_.job()), first);
}

TEST_F(JobInsightsTest, ANewPlanBringsANewOneAtOnce) {
  const auto insights = Make();
  insights->Get(example_.job());
  RunTask();
  v1::Constraints constraints;
  constraints.set_memory_limit_bytes(1200);
  ASSERT_TRUE(example_.job()->SetConstraints(constraints).ok());
  example_.Settle();
  insights->Get(example_.job());
  ASSERT_EQ(tasks_.size(), 1);
  RunTask();
  EXPECT_EQ(insights->Get(example_.job())->generation, 2);
}

TEST_F(JobInsightsTest, WhoIsRefusedAsksAgain) {
  const auto insights = Make();
  refuse_ = true;
  EXPECT_EQ(insights->Get(example_.job()), nullptr);
  refuse_ = false;
  insights->Get(example_.job());
  EXPECT_EQ(tasks_.size(), 1);
}

TEST_F(JobInsightsTest, TheOldestGoes) {
  PlannedExample other(1, "other");
  const auto insights = Make({.jobs = 1});
  insights->Get(example_.job());
  RunTask();
  example_.clock().Advance(absl::Seconds(1));
  insights->Get(other.job());
  RunTask();
  insights->Get(other.job());
  EXPECT_TRUE(tasks_.empty());
  EXPECT_EQ(insights->Get(example_.job()), nullptr);
  EXPECT_EQ(tasks_.size(), 1);
}

}  // namespace
}  // namespace tidetape::server
