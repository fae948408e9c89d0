#include "server/activation/plan_activation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "absl/synchronization/notification.h"
#include "server/store/faulty_store.h"
#include "server/store/memory_store.h"
#include "server/testing/example_job.h"
#include "server/testing/expect_stored.h"
#include "server/testing/fake_rank_channel.h"

namespace tidetape::server {
namespace {

using testing::HasSubstr;

class PlanActivationTest : public testing::Test {
 protected:
  PlanActivationTest() {
    options_.plan_step = [this](const planner::PlanningProblem& problem) -> absl::StatusOr<planner::StepPlan> {
      ++planned_;
      if (!failure_.ok()) return failure_;
      return planner::PlanStep(problem);
    };
    Start();
  }

  // A job with one rank, as after a start of the server.
  void Start() {
    ASSERT_TRUE(store_.CreateJob("example").ok());
    auto activation = std::make_shared<PlanActivation>(options_, &store_, &clock_, &worker_);
    job_ = std::make_shared<Job>("example", &store_, &clock_,
                                 [activation](std::shared_ptr<Job> job) { activation->Consider(std::move(job)); });
  }

  void Connect(const v1::Hello& hello = ExampleHello()) {
    channel_ = std::make_shared<FakeRankChannel>();
    ASSERT_TRUE(job_->Connect(hello, channel_, ExpectStored()).ok());
  }

  void SendTape(const v1::BlockTape& tape = ExampleTape()) { ASSERT_TRUE(job_->AddTape(0, channel_.get(), tape).ok()); }

  void Report(const v1::StepReport& report = ExampleReport()) {
    ASSERT_TRUE(job_->AddReport(0, channel_.get(), report, ExpectStored()).ok());
  }

  // Until everything that was asked for by now has been considered.
  void Settle() {
    absl::Notification done;
    ASSERT_TRUE(worker_.Post([&done] { done.Notify(); }));
    done.WaitForNotification();
  }

  int64_t generation() {
    Settle();
    return job_->committed() == nullptr ? 0 : job_->committed()->generation();
  }

  MemoryStore backend_;
  FaultyStore store_{&backend_};
  ManualClock clock_;
  Worker worker_{{}};
  PlanActivation::Options options_;
  std::atomic<int> planned_ = 0;
  absl::Status failure_;
  std::shared_ptr<Job> job_;
  std::shared_ptr<FakeRankChannel> channel_;
};

// The example's report, with collectives between two nodes.
v1::StepReport ReportWithLinks(int64_t step, double unbounded_rate) {
  v1::StepReport report = ExampleReport(step);
  v1::CollectiveReport* collectives = report.mutable_collectives();
  collectives->set_ranks(2);
  collectives->set_nodes(2);
  v1::LinkRates* network = collectives->mutable_network();
  network->set_bytes_per_second(1e9);
  network->set_latency_seconds(1e-5);
  const std::vector<std::pair<int64_t, double>> seen_rates = {{256 << 10, 1e9}, {0, unbounded_rate}};
  for (const auto& [window, rate] : seen_rates) {
    v1::WindowRate* seen = network->add_windows();
    seen->set_window_bytes(window);
    seen->set_bytes_per_second(rate);
  }
  v1::PacedUnits* units = collectives->add_units();
  units->set_gathered_bytes(64 << 20);
  units->set_count(4);
  return report;
}

TEST_F(PlanActivationTest, APlanCarriesThePacingUnderItsOwnGeneration) {
  Connect();
  SendTape();
  Report();
  EXPECT_EQ(generation(), 1);
  EXPECT_FALSE(job_->committed()->has_pacing());
  // The links come later, as where the collectives start late.
  Report(ReportWithLinks(2, 1e9));
  EXPECT_EQ(generation(), 2);
  EXPECT_EQ(job_->committed()->reason(), "the links between all ranks were measured");
  EXPECT_EQ(job_->committed()->pacing().generation(), 2);
  EXPECT_EQ(job_->committed()->pacing().puts_in_flight(), 256);
  ASSERT_EQ(channel_->plans().size(), 2);
  EXPECT_EQ(channel_->plans()[1]->pacing().chunk_bytes(), job_->committed()->pacing().chunk_bytes());
  Report(ReportWithLinks(3, 1e9));
  EXPECT_EQ(generation(), 2);
}

TEST_F(PlanActivationTest, ALinkThatStallsChangesThePacingAndNothingElse) {
  Connect();
  SendTape();
  Report(ReportWithLinks(1, 1e9));
  ASSERT_EQ(generation(), 1);
  const v1::Plan before = *job_->committed();
  Report(ReportWithLinks(2, 1e8));
  EXPECT_EQ(generation(), 1);  // once may be a whim
  Report(ReportWithLinks(3, 1e8));
  ASSERT_EQ(generation(), 2);
  const v1::Plan after = *job_->committed();
  EXPECT_EQ(after.pacing().puts_in_flight() * after.pacing().chunk_bytes(), 256 << 10);
  EXPECT_EQ(after.blocks(0).saved_size(), before.blocks(0).saved_size());
  EXPECT_NE(after.etag(), before.etag());
  // A restart of the server by itself changes no plan.
  Start();
  ASSERT_TRUE(job_->Restore().ok());
  Connect();
  Report(ReportWithLinks(4, 1e8));
  EXPECT_EQ(generation(), 2);
}

TEST_F(PlanActivationTest, PlansOnceEverythingIsThere) {
  Connect();
  Report();
  EXPECT_EQ(generation(), 0);
  SendTape();
  EXPECT_EQ(generation(), 1);
  ASSERT_EQ(channel_->plans().size(), 1);
  const v1::Plan& plan = *channel_->plans()[0];
  EXPECT_EQ(plan.job(), "example");
  EXPECT_EQ(plan.incarnation(), "first");
  EXPECT_EQ(plan.memory_limit_bytes(), 1300);
  EXPECT_EQ(plan.step_peak_bytes(), 1300);
  EXPECT_DOUBLE_EQ(plan.replay_seconds(), 0.001);
  EXPECT_EQ(plan.saved_bytes(), 300);
  EXPECT_TRUE(plan.feasible());
  EXPECT_EQ(plan.blocks_size(), 2);
  EXPECT_EQ(plan.blocks(0).default_action(), v1::ACTION_REPLAY);
  EXPECT_EQ(plan.committed_unix_micros(), absl::ToUnixMicros(clock_.Now()));
  EXPECT_EQ(store_.ListPlans("example", 1)->front().etag(), plan.etag());
}

TEST_F(PlanActivationTest, KeepsEverythingOrAsLittleAsPossible) {
  v1::Hello hello = ExampleHello();
  hello.set_memory_limit_bytes(-1);
  Connect(hello);
  SendTape();
  Report();
  Settle();
  EXPECT_EQ(job_->committed()->memory_limit_bytes(), -1);
  EXPECT_EQ(job_->committed()->saved_bytes(), 400);
  EXPECT_EQ(job_->committed()->blocks(0).default_action(), v1::ACTION_SAVE);
  hello.set_memory_limit_bytes(0);
  ASSERT_TRUE(job_->Update(hello, channel_.get(), ExpectStored()).ok());
  EXPECT_EQ(generation(), 2);
  EXPECT_EQ(job_->committed()->memory_limit_bytes(), 0);
  EXPECT_EQ(job_->committed()->step_peak_bytes(), job_->committed()->least_peak_bytes());
}

TEST_F(PlanActivationTest, EqualMeasurementsDoNotPlanAgain) {
  Connect();
  SendTape();
  Report();
  Settle();
  for (int step = 2; step < 20; ++step) {
    Report(ExampleReport(step));
    Settle();
  }
  EXPECT_EQ(generation(), 1);
  EXPECT_EQ(planned_, 1);
}

TEST_F(PlanActivationTest, ABrokenLimitBringsANewPlanAtOnce) {
  Connect();
  SendTape();
  Report();
  EXPECT_EQ(generation(), 1);
  v1::StepReport report = ExampleReport(2);
  report.mutable_profile()->set_head_peak_bytes(1001);  // the plan in force would reach 1301
  Report(report);
  EXPECT_EQ(generation(), 2);
  EXPECT_DOUBLE_EQ(job_->committed()->replay_seconds(), 0.002);
  EXPECT_THAT(job_->committed()->reason(), HasSubstr("above the limit of 1300"));
}

TEST_F(PlanActivationTest, AChangedLimitBringsANewPlan) {
  Connect();
  SendTape();
  Report();
  EXPECT_EQ(generation(), 1);
  v1::Constraints constraints;
  constraints.set_memory_limit_bytes(1200);
  ASSERT_TRUE(job_->SetConstraints(constraints).ok());
  EXPECT_EQ(generation(), 2);
  EXPECT_EQ(job_->committed()->step_peak_bytes(), 1200);
  ASSERT_TRUE(job_->SetConstraints(constraints).ok());  // the same again: planned, but not committed
  EXPECT_EQ(generation(), 2);
  EXPECT_EQ(planned_, 3);
}

TEST_F(PlanActivationTest, PinsAreHeld) {
  Connect();
  SendTape();
  Report();
  v1::Constraints constraints;
  v1::Pin* pin = constraints.add_pins();
  pin->set_block_glob("layers.0");
  pin->set_label_glob("aten::op2");
  pin->set_action(v1::ACTION_SAVE);
  pin = constraints.add_pins();
  pin->set_block_glob("layers.1");
  pin->set_label_glob("aten::op2");
  pin->set_action(v1::ACTION_REPLAY);
  ASSERT_TRUE(job_->SetConstraints(constraints).ok());
  Settle();
  EXPECT_THAT(job_->committed()->blocks(0).saved(), testing::ElementsAre(1, 2));
  EXPECT_THAT(job_->committed()->blocks(1).saved(), testing::ElementsAre(1));
}

TEST_F(PlanActivationTest, AnInfeasibleLimitIsSaidAndTheLeastPlanIsSent) {
  v1::Hello hello = ExampleHello();
  hello.set_memory_limit_bytes(10);
  Connect(hello);
  SendTape();
  Report();
  EXPECT_EQ(generation(), 1);
  const v1::Plan& plan = *channel_->plans()[0];
  EXPECT_FALSE(plan.feasible());
  EXPECT_EQ(plan.step_peak_bytes(), plan.least_peak_bytes());
  EXPECT_THAT(job_->Describe().events().rbegin()->text(), HasSubstr("cannot be held: the least possible step peak is"));
}

TEST_F(PlanActivationTest, AServerWithAnEmptyStoreGoesOnAboveWhatRanksHold) {
  v1::Hello hello = ExampleHello();
  hello.set_held_generation(41);
  hello.set_active_generation(41);
  Connect(hello);
  SendTape();
  Report();
  EXPECT_EQ(generation(), 42);
  // Another rank's plan from elsewhere: the same content is committed again above it.
  hello.set_held_generation(50);
  Connect(hello);
  EXPECT_EQ(generation(), 51);
  EXPECT_EQ(channel_->plans().back()->generation(), 51);
}

TEST_F(PlanActivationTest, AFailureIsToldOnceAndTriedAgain) {
  failure_ = absl::InvalidArgumentError("block 0 is odd");
  Connect();
  SendTape();
  Report();
  EXPECT_EQ(generation(), 0);
  Report(ExampleReport(2));
  Settle();
  EXPECT_EQ(job_->Summary().waiting_for(), "planning to succeed: block 0 is odd");
  int told = 0;
  const v1::GetJobResponse description = job_->Describe();
  for (const v1::JobEvent& event : description.events()) told += event.text() == "planning failed: block 0 is odd";
  EXPECT_EQ(told, 1);
  failure_ = absl::OkStatus();
  Report(ExampleReport(3));
  EXPECT_EQ(generation(), 1);
  EXPECT_EQ(job_->Summary().waiting_for(), "");
}

TEST_F(PlanActivationTest, ConsiderWhileItWaitsIsOneLook) {
  Connect();
  SendTape();
  absl::Notification go;
  ASSERT_TRUE(worker_.Post([&go] { go.WaitForNotification(); }));
  for (int i = 0; i < 100; ++i) Report(ExampleReport(i + 1));
  go.Notify();
  EXPECT_EQ(generation(), 1);
  EXPECT_EQ(planned_, 1);
}

TEST_F(PlanActivationTest, ARestartByItselfChangesNoPlan) {
  Connect();
  SendTape();
  Report();
  ASSERT_EQ(generation(), 1);
  Start();
  ASSERT_TRUE(job_->Restore().ok());
  v1::Hello hello = ExampleHello();
  hello.set_held_generation(1);
  Connect(hello);
  // Off the prediction by less than makes a plan worth another look, though another plan would be a little better now.
  v1::StepReport report = ExampleReport(2);
  report.mutable_profile()->set_head_peak_bytes(990);
  Report(report);
  EXPECT_EQ(generation(), 1);
  EXPECT_EQ(planned_, 1);
  // What breaks the limit is still seen.
  report.mutable_profile()->set_head_peak_bytes(1001);
  Report(report);
  EXPECT_EQ(generation(), 2);
}

TEST_F(PlanActivationTest, ACommitThatFailedIsTriedAgain) {
  Connect();
  SendTape();
  store_.Fail(FaultyStore::Fault::kBeforeRequest, 2);  // the report's write is the first
  v1::StepReport report = ExampleReport();
  ASSERT_TRUE(job_->AddReport(0, channel_.get(), report, [](const absl::Status&) {}).ok());
  EXPECT_EQ(generation(), 0);
  EXPECT_THAT(channel_->plans(), testing::IsEmpty());
  ASSERT_TRUE(job_->Sweep(absl::Hours(1)).ok());
  EXPECT_EQ(generation(), 1);
}

// The store has the plan, the server does not know: no other plan may get its generation.
TEST_F(PlanActivationTest, ACommitWhoseAnswerWasLostIsTakenUp) {
  Connect();
  SendTape();
  // Or the question that the tape asked could still be answered after the report, and so before the store fails.
  Settle();
  absl::Notification go;
  ASSERT_TRUE(worker_.Post([&go] { go.WaitForNotification(); }));
  Report();
  store_.Fail(FaultyStore::Fault::kAfterResponse);
  go.Notify();
  EXPECT_EQ(generation(), 0);
  const v1::Plan stored = backend_.ListPlans("example", 1)->front();
  EXPECT_EQ(stored.generation(), 1);
  // Meanwhile the measurements say something else.
  clock_.Advance(absl::Seconds(1));
  v1::StepReport report = ExampleReport(2);
  report.mutable_profile()->set_head_peak_bytes(1001);
  Report(report);
  Settle();
  ASSERT_FALSE(channel_->plans().empty());
  EXPECT_EQ(channel_->plans()[0]->SerializeAsString(), stored.SerializeAsString());
  Report(report);
  EXPECT_EQ(generation(), 2);
  for (const auto& plan : channel_->plans()) {
    if (plan->generation() == 1) {
      EXPECT_EQ(plan->etag(), stored.etag());
    }
  }
}

TEST_F(PlanActivationTest, AFrozenPlanStaysWhateverIsMeasured) {
  Connect();
  SendTape();
  Report();
  ASSERT_EQ(generation(), 1);
  v1::Constraints frozen;
  frozen.set_frozen_generation(1);
  ASSERT_TRUE(job_->SetConstraints(frozen).ok());
  v1::StepReport report = ExampleReport(2);
  report.mutable_profile()->set_head_peak_bytes(1001);  // the plan in force would reach 1301
  Report(report);
  EXPECT_EQ(generation(), 1);
  ASSERT_TRUE(job_->SetConstraints(v1::Constraints()).ok());
  EXPECT_EQ(generation(), 2);
}

TEST_F(PlanActivationTest, AnOlderPlanIsCommittedAgainAndStays) {
  Connect();
  SendTape();
  Report();
  ASSERT_EQ(generation(), 1);
  const v1::Plan first = *job_->committed();
  v1::Constraints constraints;
  constraints.set_memory_limit_bytes(1200);
  ASSERT_TRUE(job_->SetConstraints(constraints).ok());
  ASSERT_EQ(generation(), 2);
  constraints.set_frozen_generation(1);
  ASSERT_TRUE(job_->SetConstraints(constraints).ok());
  ASSERT_EQ(generation(), 3);
  EXPECT_EQ(job_->committed()->repeats_generation(), 1);
  EXPECT_EQ(job_->committed()->etag(), first.etag());
  EXPECT_EQ(job_->committed()->step_peak_bytes(), 1300);
  ASSERT_EQ(channel_->plans().size(), 3);
  EXPECT_EQ(channel_->plans()[2]->generation(), 3);
  for (int step = 2; step < 5; ++step) {
    Report(ExampleReport(step));
    EXPECT_EQ(generation(), 3);
  }
  // A rank that is ahead of the server gets the same plan above what it holds.
  v1::Hello ahead = ExampleHello();
  ahead.set_held_generation(7);
  ASSERT_TRUE(job_->Update(ahead, channel_.get(), ExpectStored()).ok());
  EXPECT_EQ(generation(), 8);
  EXPECT_EQ(job_->committed()->etag(), first.etag());
}

TEST_F(PlanActivationTest, AFrozenPlanHoldsForANewStartOfTheJobWithTheSameBlocks) {
  Connect();
  SendTape();
  Report();
  ASSERT_EQ(generation(), 1);
  v1::Constraints frozen;
  frozen.set_frozen_generation(1);
  ASSERT_TRUE(job_->SetConstraints(frozen).ok());
  v1::Hello second = ExampleHello(0, 1, "second", 2);
  second.set_memory_limit_bytes(1200);
  Connect(second);
  Report();
  ASSERT_EQ(generation(), 2);
  EXPECT_EQ(job_->committed()->repeats_generation(), 1);
  EXPECT_EQ(job_->committed()->incarnation(), "second");

  Connect(ExampleHello(0, 1, "third", 3));
  v1::StepReport shorter = ExampleReport();
  shorter.mutable_profile()->mutable_blocks()->RemoveLast();
  Report(shorter);
  ASSERT_EQ(generation(), 3);
  EXPECT_EQ(job_->committed()->repeats_generation(), 0);
  EXPECT_EQ(job_->committed()->blocks_size(), 1);
}

TEST_F(PlanActivationTest, OnlyAPlanThatFitsIsFrozen) {
  Connect();
  SendTape();
  Report();
  ASSERT_EQ(generation(), 1);
  v1::Constraints frozen;
  frozen.set_frozen_generation(99);
  const absl::Status unknown = job_->SetConstraints(frozen);
  EXPECT_TRUE(absl::IsNotFound(unknown)) << unknown;
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("no plan of generation 99; kept are 1"));
  EXPECT_EQ(job_->constraints().frozen_generation(), 0);

  Connect(ExampleHello(0, 1, "second", 2));
  v1::StepReport shorter = ExampleReport();
  shorter.mutable_profile()->mutable_blocks()->RemoveLast();
  Report(shorter);
  ASSERT_EQ(generation(), 2);
  frozen.set_frozen_generation(1);
  EXPECT_TRUE(absl::IsFailedPrecondition(job_->SetConstraints(frozen)));
}

TEST_F(PlanActivationTest, ADisabledJobKeepsEverything) {
  Connect();
  SendTape();
  Report();
  ASSERT_EQ(generation(), 1);
  v1::Constraints constraints;
  constraints.set_memory_limit_bytes(1200);
  constraints.set_frozen_generation(1);
  constraints.set_disabled(true);
  v1::Pin* pin = constraints.add_pins();
  pin->set_label_glob("*");
  pin->set_action(v1::ACTION_REPLAY);
  ASSERT_TRUE(job_->SetConstraints(constraints).ok());
  ASSERT_EQ(generation(), 2);
  EXPECT_EQ(job_->committed()->saved_bytes(), 400);
  EXPECT_EQ(job_->committed()->replay_seconds(), 0);
  EXPECT_EQ(job_->committed()->blocks(0).default_action(), v1::ACTION_SAVE);
  ASSERT_TRUE(job_->SetConstraints(v1::Constraints()).ok());
  EXPECT_EQ(generation(), 3);
  EXPECT_EQ(job_->committed()->step_peak_bytes(), 1300);
}

TEST_F(PlanActivationTest, ConstraintsThatChangedMeanwhileAreNotReplaced) {
  Connect();
  const std::string seen = job_->constraints_etag();
  v1::Constraints constraints;
  constraints.set_memory_limit_bytes(1200);
  ASSERT_TRUE(job_->SetConstraints(constraints, seen).ok());
  EXPECT_NE(job_->constraints_etag(), seen);
  constraints.set_memory_limit_bytes(1100);
  EXPECT_TRUE(absl::IsAborted(job_->SetConstraints(constraints, seen)));
  EXPECT_EQ(job_->constraints().memory_limit_bytes(), 1200);
  EXPECT_EQ(job_->Describe().constraints_etag(), job_->constraints_etag());
  ASSERT_TRUE(job_->SetConstraints(v1::Constraints(), job_->constraints_etag()).ok());
  EXPECT_EQ(job_->constraints_etag(), seen);
}

}  // namespace
}  // namespace tidetape::server
