// Jobs over restarts of the server, and their end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/job/job.h"
#include "server/store/memory_store.h"
#include "server/testing/example_job.h"
#include "server/testing/expect_stored.h"
#include "server/testing/fake_rank_channel.h"

namespace tidetape::server {
namespace {

using testing::HasSubstr;

class JobLifeTest : public testing::Test {
 protected:
  JobLifeTest() { job_ = MakeJob(); }

  // As after a restart of the server, where it has none of the job's memory.
  std::shared_ptr<Job> MakeJob() {
    EXPECT_TRUE(store_.CreateJob("example").ok());
    return std::make_shared<Job>("example", &store_, &clock_, [](std::shared_ptr<Job>) {});
  }

  std::shared_ptr<FakeRankChannel> Connect(const v1::Hello& hello) {
    auto channel = std::make_shared<FakeRankChannel>();
    const auto welcome = job_->Connect(hello, channel, ExpectStored());
    EXPECT_TRUE(welcome.ok()) << welcome.status();
    return channel;
  }

  MemoryStore store_;
  ManualClock clock_;
  std::shared_ptr<Job> job_;
};

TEST_F(JobLifeTest, ARestartFindsRanksCostsAndProfilesAgain) {
  const auto zero = Connect(ExampleHello(0, 2));
  const auto one = Connect(ExampleHello(1, 2));
  ASSERT_TRUE(job_->AddTape(0, zero.get(), ExampleTape()).ok());
  v1::StepReport report = ExampleReport(4);
  report.add_costs()->set_structure_hash(kExampleHash);
  for (const double cost : {0.5, 0.25}) {
    report.mutable_costs(0)->add_cost_seconds(cost);
    report.mutable_costs(0)->add_replay_workspace_bytes(0);
  }
  ASSERT_TRUE(job_->AddReport(0, zero.get(), report, ExpectStored()).ok());
  // A second measurement of one op: the store must have both.
  report.mutable_costs(0)->set_cost_seconds(0, -1);
  report.mutable_costs(0)->set_cost_seconds(1, 0.125);
  ASSERT_TRUE(job_->AddReport(0, zero.get(), report, ExpectStored()).ok());
  ASSERT_TRUE(job_->AddReport(1, one.get(), ExampleReport(5), ExpectStored()).ok());
  v1::PlanHeld held;
  held.set_generation(6);
  ASSERT_TRUE(job_->AddPlanHeld(1, one.get(), held, ExpectStored()).ok());
  clock_.Advance(absl::Seconds(30));

  job_ = MakeJob();
  ASSERT_TRUE(job_->Restore().ok());
  const v1::GetJobResponse description = job_->Describe();
  ASSERT_EQ(description.ranks_size(), 2);
  EXPECT_EQ(description.ranks(0).node(), "node0");
  EXPECT_EQ(description.ranks(0).reports(), 2);
  EXPECT_EQ(description.ranks(0).last_report().step(), 4);
  EXPECT_FALSE(description.ranks(0).connected());
  EXPECT_DOUBLE_EQ(description.ranks(0).silent_seconds(), 30);
  EXPECT_EQ(description.ranks(1).last_report().step(), 5);
  EXPECT_EQ(description.ranks(1).held_generation(), 6);
  // Nobody has to measure again.
  Connect(ExampleHello(0, 2));
  Connect(ExampleHello(1, 2));
  const auto input = job_->MakePlanningInput();
  ASSERT_TRUE(input.ok()) << input.status();
  EXPECT_DOUBLE_EQ(input->problem.tapes[0].ops[0].cost_seconds, 0.5);
  EXPECT_DOUBLE_EQ(input->problem.tapes[0].ops[1].cost_seconds, 0.125);
  EXPECT_EQ(input->problem.head_peak_bytes, 1000);
  EXPECT_EQ(input->next_generation, 7);
}

TEST_F(JobLifeTest, ARestartKnowsWhetherThePlanIsOfTheNewestConstraints) {
  const auto channel = Connect(ExampleHello());
  ASSERT_TRUE(job_->AddTape(0, channel.get(), ExampleTape()).ok());
  ASSERT_TRUE(job_->AddReport(0, channel.get(), ExampleReport(), ExpectStored()).ok());
  auto input = job_->MakePlanningInput();
  v1::Plan plan;
  plan.set_job("example");
  plan.set_incarnation("first");
  plan.set_generation(1);
  plan.set_memory_limit_bytes(1300);
  plan.set_revision(input->revision);
  ASSERT_TRUE(store_.CommitPlan(plan).ok());
  ASSERT_TRUE(job_->Adopt(*input, plan));
  const auto reason_after_restart = [this] {
    job_ = MakeJob();
    EXPECT_TRUE(job_->Restore().ok());
    Connect(ExampleHello());
    return job_->MakePlanningInput()->forced_reason;
  };
  EXPECT_EQ(reason_after_restart(), "");
  v1::Constraints constraints;
  v1::Pin* pin = constraints.add_pins();
  pin->set_label_glob("aten::op1");
  pin->set_action(v1::ACTION_REPLAY);
  ASSERT_TRUE(job_->SetConstraints(constraints).ok());  // and the server dies before it plans
  EXPECT_EQ(reason_after_restart(), "the job's tapes or constraints changed");
}

TEST_F(JobLifeTest, AnOperatorsEndIsFinalForTheIncarnation) {
  const auto channel = Connect(ExampleHello(0, 1, "first", 1));
  ASSERT_TRUE(job_->End("an operator ended it").ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(channel->closed().value()));
  EXPECT_EQ(job_->Summary().state(), v1::JobSummary::STATE_ENDED);
  EXPECT_EQ(job_->Summary().end_reason(), "an operator ended it");
  for (int life = 0; life < 2; ++life) {
    const absl::Status refused =
        job_->Connect(ExampleHello(0, 1, "first", 1), std::make_shared<FakeRankChannel>(), ExpectStored()).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("start the job again to report"));
    job_ = MakeJob();
    ASSERT_TRUE(job_->Restore().ok());
  }
  Connect(ExampleHello(0, 1, "second", 2));
  EXPECT_EQ(job_->Summary().state(), v1::JobSummary::STATE_GATHERING);
  EXPECT_EQ(job_->ended_at(), absl::InfiniteFuture());
}

TEST_F(JobLifeTest, EndsWhenAllRanksHaveFinished) {
  const auto zero = Connect(ExampleHello(0, 2));
  const auto one = Connect(ExampleHello(1, 2));
  job_->Disconnect(0, zero.get(), Job::Parting::kGoodbye);
  job_->Disconnect(1, one.get(), Job::Parting::kLost);
  ASSERT_TRUE(job_->Sweep(absl::Hours(1)).ok());
  EXPECT_EQ(job_->Summary().state(), v1::JobSummary::STATE_LOST);  // a rank that broke off may come back
  const auto again = Connect(ExampleHello(1, 2));
  job_->Disconnect(1, again.get(), Job::Parting::kGoodbye);
  ASSERT_TRUE(job_->Sweep(absl::Hours(1)).ok());
  EXPECT_EQ(job_->Summary().end_reason(), "all ranks have finished");
  EXPECT_EQ(job_->ended_at(), clock_.Now());
}

TEST_F(JobLifeTest, EndsAfterASilenceAndComesBack) {
  const auto channel = Connect(ExampleHello());
  clock_.Advance(absl::Hours(2));
  ASSERT_TRUE(job_->Sweep(absl::Hours(1)).ok());
  EXPECT_NE(job_->Summary().state(), v1::JobSummary::STATE_ENDED);  // its rank is connected: a step may take long
  job_->Disconnect(0, channel.get(), Job::Parting::kLost);
  ASSERT_TRUE(job_->Sweep(absl::Hours(1)).ok());
  EXPECT_EQ(job_->Summary().end_reason(), "no rank was heard of for 1h");
  Connect(ExampleHello());
  EXPECT_EQ(job_->Summary().end_reason(), "");
  EXPECT_FALSE(store_.GetJob("example")->end.has_value());
}

TEST_F(JobLifeTest, AnAgentsWordsAreOneLine) {
  v1::Hello hello = ExampleHello();
  hello.set_node("node\nforged job=other");
  Connect(hello);
  EXPECT_EQ(job_->Describe().events().rbegin()->text(), "rank 0 of 1 connected from node forged job=other");
}

}  // namespace
}  // namespace tidetape::server
