// Plans from what earlier runs measured, and plans that count in what measured peaks had above those predicted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "absl/synchronization/notification.h"
#include "server/activation/plan_activation.h"
#include "server/job/known_runs.h"
#include "server/store/memory_store.h"
#include "server/testing/example_job.h"
#include "server/testing/expect_stored.h"
#include "server/testing/fake_rank_channel.h"

namespace tidetape::server {
namespace {

using testing::HasSubstr;
using testing::Not;

// Of one steady step: enough to confirm an earlier run by, too little to plan by.
v1::StepReport EarlyReport(int64_t step = 1) {
  v1::StepReport report = ExampleReport(step);
  report.mutable_profile()->set_steady(false);
  report.mutable_profile()->set_early(true);
  return report;
}

v1::StepReport WithHead(v1::StepReport report, int64_t bytes) {
  report.mutable_profile()->set_head_peak_bytes(bytes);
  return report;
}

// A step under a plan, without a profile.
v1::StepReport StepUnder(int64_t generation, int64_t peak) {
  v1::StepReport report;
  report.set_generation(generation);
  report.set_step_peak_bytes(peak);
  return report;
}

class WarmStartTest : public testing::Test {
 protected:
  WarmStartTest() {
    options_.committed = [this](PlanCause cause) { ++causes_[PlanCauseName(cause)]; };
  }

  // The job of this name, as after a start of the server.
  void Start(const std::string& name) {
    ASSERT_TRUE(store_.CreateJob(name).ok());
    auto activation = std::make_shared<PlanActivation>(options_, &store_, &clock_, &worker_);
    job_ = std::make_shared<Job>(name, &store_, &clock_,
                                 [activation](std::shared_ptr<Job> job) { activation->Consider(std::move(job)); });
    ASSERT_TRUE(job_->Restore().ok());
  }

  // All ranks connect, and send the tape.
  void Connect(int32_t ranks = 1, const v1::BlockTape& tape = ExampleTape(), const std::string& device = "cpu") {
    channels_.clear();
    ++incarnations_;
    for (int32_t rank = 0; rank < ranks; ++rank) {
      v1::Hello hello = ExampleHello(rank, ranks, "start" + std::to_string(incarnations_), incarnations_);
      hello.set_job(job_->name());
      hello.set_device(device);
      channels_.push_back(std::make_shared<FakeRankChannel>());
      ASSERT_TRUE(job_->Connect(hello, channels_.back(), ExpectStored()).ok());
      ASSERT_TRUE(job_->AddTape(rank, channels_.back().get(), tape).ok());
    }
  }

  void Report(const v1::StepReport& report, int32_t rank = 0) {
    ASSERT_TRUE(job_->AddReport(rank, channels_[rank].get(), report, ExpectStored()).ok());
    Settle();
  }

  void Settle() {
    absl::Notification done;
    ASSERT_TRUE(worker_.Post([&done] { done.Notify(); }));
    done.WaitForNotification();
  }

  // 0 before the first plan of the incarnation.
  int64_t generation() const { return job_->committed() == nullptr ? 0 : job_->committed()->generation(); }

  std::string Events() const {
    std::string text;
    for (const v1::JobEvent& event : job_->events().Events()) text += event.text() + "\n";
    return text;
  }

  // A job that ran before, with all that a plan is made from.
  void RunBefore() {
    Start("before");
    Connect();
    Report(ExampleReport());
    ASSERT_EQ(generation(), 1);
  }

  MemoryStore store_;
  ManualClock clock_;
  Worker worker_{{}};
  PlanActivation::Options options_;
  std::map<std::string, int> causes_;
  int incarnations_ = 0;
  std::shared_ptr<Job> job_;
  std::vector<std::shared_ptr<FakeRankChannel>> channels_;
};

TEST_F(WarmStartTest, WithoutAnEarlierRunOneStepIsNotEnough) {
  Start("new");
  Connect();
  Report(EarlyReport(1));
  Report(EarlyReport(2));
  EXPECT_EQ(generation(), 0);
  EXPECT_THAT(job_->Summary().waiting_for(), HasSubstr("a profile of a steady step"));
  Report(ExampleReport(3));
  EXPECT_EQ(generation(), 1);
  EXPECT_EQ(causes_["first"], 1);
}

TEST_F(WarmStartTest, ARestartedJobHasItsPlanWithItsFirstProfile) {
  RunBefore();
  Connect();
  EXPECT_EQ(generation(), 0);
  Report(EarlyReport());
  ASSERT_EQ(generation(), 2);
  EXPECT_EQ(job_->committed()->step_peak_bytes(), 1300);
  EXPECT_THAT(job_->committed()->reason(), HasSubstr("a warm start: job 'before' ran the same blocks"));
  EXPECT_EQ(channels_[0]->plans().size(), 1);
  EXPECT_EQ(causes_["warm_start"], 1);
  // What is measured then says the same: the plan stays.
  for (int step = 3; step < 8; ++step) Report(ExampleReport(step));
  EXPECT_EQ(generation(), 2);
}

TEST_F(WarmStartTest, AnotherJobOfTheSameBlocksDoesToo) {
  RunBefore();
  ASSERT_TRUE(store_.DeleteJob("before").ok());
  Start("after");
  Connect();
  Report(EarlyReport());
  EXPECT_EQ(generation(), 1);
  EXPECT_EQ(job_->committed()->step_peak_bytes(), 1300);
}

TEST_F(WarmStartTest, OtherBlocksSizesAndDevicesAreUnknown) {
  RunBefore();
  v1::BlockTape larger = ExampleTape();
  larger.mutable_storages(1)->set_bytes(101);
  Start("larger");
  Connect(1, larger);
  Report(EarlyReport());
  EXPECT_EQ(generation(), 0);
  Start("elsewhere");
  Connect(1, ExampleTape(), "NVIDIA H200");
  Report(EarlyReport());
  EXPECT_EQ(generation(), 0);
}

TEST_F(WarmStartTest, EveryRankMustHaveMeasuredASteadyStep) {
  RunBefore();
  Start("two");
  Connect(2);
  Report(EarlyReport(), 0);
  EXPECT_EQ(generation(), 0);
  v1::StepReport first = ExampleReport(0);  // the optimizer's state is not there yet
  first.mutable_profile()->set_steady(false);
  Report(first, 1);
  EXPECT_EQ(generation(), 0);
  Report(EarlyReport(), 1);
  EXPECT_EQ(generation(), 1);
}

TEST_F(WarmStartTest, NoPlanIsLooserThanWhatIsMeasuredNow) {
  RunBefore();
  Start("fuller");
  Connect();
  Report(WithHead(EarlyReport(), 1100));
  ASSERT_EQ(generation(), 1);
  EXPECT_EQ(job_->committed()->saved_bytes(), 200);
  EXPECT_EQ(job_->committed()->step_peak_bytes(), 1300);
}

TEST_F(WarmStartTest, NoPlanIsLooserThanWhatTheEarlierRunMeasured) {
  RunBefore();
  Start("emptier");
  Connect();
  Report(WithHead(EarlyReport(), 600));
  ASSERT_EQ(generation(), 1);
  EXPECT_EQ(job_->committed()->saved_bytes(), 300);
  // Once it is sure that there is more room, the plan follows.
  for (int step = 3; step < 8; ++step) {
    v1::StepReport report = WithHead(ExampleReport(step), 600);
    for (auto& block : *report.mutable_profile()->mutable_blocks()) {
      block.mutable_instance()->set_forward_base_bytes(600);
      block.mutable_instance()->set_backward_base_bytes(600);
    }
    Report(report);
  }
  EXPECT_EQ(generation(), 2);
  EXPECT_EQ(job_->committed()->saved_bytes(), 400);
  EXPECT_THAT(job_->committed()->reason(), HasSubstr("went from"));
  EXPECT_EQ(causes_["peak"], 1);
}

TEST_F(WarmStartTest, APlanThatTurnsOutTooLooseIsReplacedAtOnce) {
  RunBefore();
  Start("after");
  Connect();
  Report(EarlyReport());
  ASSERT_EQ(job_->committed()->saved_bytes(), 300);
  Report(WithHead(ExampleReport(3), 1100));
  EXPECT_EQ(generation(), 2);
  EXPECT_EQ(job_->committed()->saved_bytes(), 200);
  EXPECT_EQ(causes_["over_limit"], 1);
}

TEST_F(WarmStartTest, WhatAnOperatorPinnedHolds) {
  RunBefore();
  v1::Constraints constraints;
  v1::Pin* pin = constraints.add_pins();
  pin->set_label_glob("aten::op1");
  pin->set_action(v1::ACTION_REPLAY);
  ASSERT_TRUE(job_->SetConstraints(constraints).ok());
  Connect();
  Report(EarlyReport());
  EXPECT_EQ(job_->committed()->saved_bytes(), 200);
  // And is no part of what is known.
  Start("after");
  Connect();
  Report(EarlyReport());
  EXPECT_EQ(job_->committed()->saved_bytes(), 300);
}

TEST_F(WarmStartTest, WhatDoesNotFitIsIgnored) {
  RunBefore();
  Start("after");
  Connect();
  Report(ExampleReport());
  const KnownRunKey key = job_->PeekPlanningInput()->run_key;
  v1::KnownRun other;
  other.mutable_problem()->set_head_peak_bytes(1);
  ASSERT_TRUE(store_.PutKnownRun(key, other, clock_.Now(), 1 << 20).ok());
  Connect();
  Report(EarlyReport());
  EXPECT_EQ(generation(), 0);
  Report(ExampleReport(3));
  EXPECT_EQ(generation(), 2);
}

TEST_F(WarmStartTest, ThereAreNoneWhereNothingIsKept) {
  options_.known_run_bytes = 0;
  RunBefore();
  Connect();
  Report(EarlyReport());
  EXPECT_EQ(generation(), 0);
}

TEST_F(WarmStartTest, RoundsOfRanksThatAreNotAtOneStepEndInAPlan) {
  Start("new");
  Connect(2);
  Report(EarlyReport(1), 0);
  Report(EarlyReport(2), 0);
  Report(ExampleReport(3), 0);
  Report(EarlyReport(1), 1);  // completes a round that finds nothing
  Report(EarlyReport(2), 1);
  EXPECT_EQ(generation(), 0);
  Report(ExampleReport(3), 1);
  EXPECT_EQ(generation(), 1);
}

using ResidualTest = WarmStartTest;

TEST_F(ResidualTest, PeaksAboveTheBandAreCountedIn) {
  RunBefore();
  Report(StepUnder(1, 1400));
  Report(StepUnder(1, 1420));
  EXPECT_EQ(generation(), 1);
  Report(StepUnder(1, 1410));
  ASSERT_EQ(generation(), 2);
  EXPECT_EQ(job_->committed()->residual_bytes(), 100);
  EXPECT_EQ(job_->committed()->saved_bytes(), 200);  // 1000 + 100 + 200
  EXPECT_EQ(job_->committed()->step_peak_bytes(), 1300);
  EXPECT_THAT(job_->committed()->reason(), HasSubstr("rank 0 measured step peaks 100 B and more above"));
  EXPECT_THAT(Events(), HasSubstr("plans count that in from now on"));
  EXPECT_EQ(causes_["residual"], 1);
  // What the ranks measure is now what was predicted, and profiles that know nothing of it do not bring the old plan back.
  for (int step = 0; step < 10; ++step) {
    Report(StepUnder(2, 1300));
    v1::StepReport measured = ExampleReport(20 + step);
    measured.set_generation(2);
    measured.set_step_peak_bytes(1300);
    Report(measured);
  }
  EXPECT_EQ(generation(), 2);
}

TEST_F(ResidualTest, OddStepsAndOlderPlansAreNoNews) {
  RunBefore();
  for (int i = 0; i < 10; ++i) {
    Report(StepUnder(1, 1400));
    Report(StepUnder(1, 1400));
    Report(StepUnder(1, 1310));
    Report(StepUnder(0, 5000));
  }
  EXPECT_EQ(generation(), 1);
  EXPECT_THAT(Events(), Not(HasSubstr("above")));
}

TEST_F(ResidualTest, SurvivesTheServerAndTheNextStartOfTheJob) {
  RunBefore();
  for (int i = 0; i < 3; ++i) Report(StepUnder(1, 1400));
  ASSERT_EQ(generation(), 2);
  // Another server.
  Start("before");
  EXPECT_EQ(generation(), 2);
  channels_ = {std::make_shared<FakeRankChannel>()};
  v1::Hello again = ExampleHello(0, 1, "start1", 1);
  again.set_job("before");
  again.set_held_generation(2);
  ASSERT_TRUE(job_->Connect(again, channels_[0], ExpectStored()).ok());
  for (int step = 30; step < 35; ++step) Report(ExampleReport(step));
  EXPECT_EQ(generation(), 2);
  // Another start.
  Connect();
  Report(EarlyReport());
  EXPECT_EQ(generation(), 3);
  EXPECT_EQ(job_->committed()->residual_bytes(), 100);
  EXPECT_EQ(job_->committed()->saved_bytes(), 200);
}

TEST_F(ResidualTest, ALimitThatCannotBeHeldIsNotPlannedForAgainAndAgain) {
  RunBefore();
  v1::Constraints constraints;
  constraints.set_memory_limit_bytes(1000);
  ASSERT_TRUE(job_->SetConstraints(constraints).ok());
  Settle();
  ASSERT_EQ(generation(), 2);
  ASSERT_FALSE(job_->committed()->feasible());
  const int64_t predicted = job_->committed()->step_peak_bytes();
  for (int i = 0; i < 20; ++i) Report(StepUnder(generation(), predicted + 100));
  EXPECT_EQ(generation(), 3);
}

}  // namespace
}  // namespace tidetape::server
