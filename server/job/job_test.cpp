#include "server/job/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/store/memory_store.h"
#include "server/testing/example_job.h"
#include "server/testing/expect_stored.h"
#include "server/testing/fake_rank_channel.h"

namespace tidetape::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class JobTest : public testing::Test {
 protected:
  JobTest() { job_ = MakeJob(); }

  std::shared_ptr<Job> MakeJob() {
    EXPECT_TRUE(store_.CreateJob("example").ok());
    return std::make_shared<Job>("example", &store_, &clock_, [this](std::shared_ptr<Job>) { ++considered_; });
  }

  std::shared_ptr<FakeRankChannel> Connect(const v1::Hello& hello) {
    auto channel = std::make_shared<FakeRankChannel>();
    const auto welcome = job_->Connect(hello, channel, ExpectStored());
    EXPECT_TRUE(welcome.ok()) << welcome.status();
    return channel;
  }

  // Commits as PlanActivation does.
  v1::Plan Commit(int64_t generation) {
    const auto input = job_->MakePlanningInput();
    EXPECT_TRUE(input.ok()) << input.status();
    v1::Plan plan;
    plan.set_job("example");
    plan.set_incarnation(input->incarnation);
    plan.set_generation(generation);
    plan.set_memory_limit_bytes(input->problem.memory_limit_bytes);
    plan.set_step_peak_bytes(1300);
    EXPECT_TRUE(store_.CommitPlan(plan).ok());
    EXPECT_TRUE(job_->Adopt(*input, plan));
    return plan;
  }

  MemoryStore store_;
  ManualClock clock_;
  int considered_ = 0;
  std::shared_ptr<Job> job_;
};

TEST_F(JobTest, SaysWhatItWaitsFor) {
  EXPECT_EQ(job_->Summary().state(), v1::JobSummary::STATE_LOST);
  const auto zero = Connect(ExampleHello(0, 2));
  EXPECT_EQ(job_->Summary().waiting_for(), "ranks to connect: 1 of 2");
  EXPECT_EQ(job_->Summary().state(), v1::JobSummary::STATE_GATHERING);
  const auto one = Connect(ExampleHello(1, 2));
  EXPECT_EQ(job_->Summary().waiting_for(), "a profile of a steady step from ranks: 0, 1");
  v1::StepReport unsteady = ExampleReport();
  unsteady.mutable_profile()->set_steady(false);
  ASSERT_TRUE(job_->AddReport(0, zero.get(), ExampleReport(), ExpectStored()).ok());
  ASSERT_TRUE(job_->AddReport(1, one.get(), unsteady, ExpectStored()).ok());
  EXPECT_EQ(job_->Summary().waiting_for(), "a profile of a steady step from ranks: 1");
  ASSERT_TRUE(job_->AddReport(1, one.get(), ExampleReport(), ExpectStored()).ok());
  EXPECT_THAT(job_->Summary().waiting_for(), HasSubstr("tapes: 000000000000abcd"));
  EXPECT_TRUE(absl::IsFailedPrecondition(job_->MakePlanningInput().status()));
  EXPECT_THAT(zero->requested(), ElementsAre(kExampleHash));
  ASSERT_TRUE(job_->AddTape(0, zero.get(), ExampleTape()).ok());
  EXPECT_EQ(job_->Summary().waiting_for(), "");
  EXPECT_TRUE(job_->MakePlanningInput().ok());
}

TEST_F(JobTest, WelcomeNamesTheTapesThatAreMissing) {
  auto channel = std::make_shared<FakeRankChannel>();
  EXPECT_THAT(job_->Connect(ExampleHello(), channel, ExpectStored())->missing_tapes(), ElementsAre(kExampleHash));
  ASSERT_TRUE(job_->AddTape(0, channel.get(), ExampleTape()).ok());
  EXPECT_THAT(job_->Connect(ExampleHello(), std::make_shared<FakeRankChannel>(), ExpectStored())->missing_tapes(), IsEmpty());
}

TEST_F(JobTest, ANewIncarnationReplacesAnOlderOneButKeepsItsTapes) {
  const auto old = Connect(ExampleHello(0, 1, "first", 10));
  ASSERT_TRUE(job_->AddTape(0, old.get(), ExampleTape()).ok());
  ASSERT_TRUE(job_->AddReport(0, old.get(), ExampleReport(), ExpectStored()).ok());
  Commit(1);
  const auto young = Connect(ExampleHello(0, 2, "second", 20));
  ASSERT_TRUE(old->closed().has_value());
  EXPECT_TRUE(absl::IsFailedPrecondition(*old->closed()));
  EXPECT_THAT(std::string(old->closed()->message()), HasSubstr("'first' is superseded by the newer incarnation 'second'"));
  EXPECT_TRUE(absl::IsAborted(job_->AddReport(0, old.get(), ExampleReport(), ExpectStored())));
  EXPECT_EQ(job_->committed(), nullptr);
  EXPECT_THAT(young->plans(), IsEmpty());
  EXPECT_EQ(job_->Summary().world_size(), 2);
  const auto one = Connect(ExampleHello(1, 2, "second", 20));
  for (const auto& [rank, channel] : {std::pair(0, young), std::pair(1, one)}) {
    ASSERT_TRUE(job_->AddReport(rank, channel.get(), ExampleReport(), ExpectStored()).ok());
    EXPECT_THAT(channel->requested(), IsEmpty());
  }
  EXPECT_EQ(job_->MakePlanningInput()->next_generation, 2);
}

TEST_F(JobTest, OlderAndSupersededIncarnationsAreRefused) {
  Connect(ExampleHello(0, 1, "first", 10));
  Connect(ExampleHello(0, 1, "second", 10));  // of equal order, the one seen later is the newer
  for (const auto& hello : {ExampleHello(0, 1, "first", 10), ExampleHello(0, 1, "zeroth", 9)}) {
    const auto status = job_->Connect(hello, std::make_shared<FakeRankChannel>(), ExpectStored()).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("superseded by the newer incarnation 'second'"));
  }
}

TEST_F(JobTest, ANewStreamOfARankReplacesTheOldOne) {
  const auto old = Connect(ExampleHello());
  const auto young = Connect(ExampleHello());
  EXPECT_TRUE(absl::IsAborted(old->closed().value()));
  EXPECT_FALSE(young->closed().has_value());
  job_->Disconnect(0, old.get(), Job::Parting::kLost);  // comes late and must not take the new one down
  EXPECT_EQ(job_->Summary().connected_ranks(), 1);
  EXPECT_TRUE(absl::IsAborted(job_->AddReport(0, old.get(), ExampleReport(), ExpectStored())));
  EXPECT_TRUE(job_->AddReport(0, young.get(), ExampleReport(), ExpectStored()).ok());
}

TEST_F(JobTest, TheWorldSizeMustBeTheIncarnations) {
  Connect(ExampleHello(0, 2));
  const auto status = job_->Connect(ExampleHello(1, 3), std::make_shared<FakeRankChannel>(), ExpectStored()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("world_size = 3, but incarnation 'first' has 2 ranks"));
}

TEST_F(JobTest, TheWorstRanksMemoryAndTheMedianCostCount) {
  std::vector<std::shared_ptr<FakeRankChannel>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(Connect(ExampleHello(rank, 3)));
    v1::StepReport report = ExampleReport();
    report.mutable_profile()->set_head_peak_bytes(1000 + 10 * rank);
    report.mutable_profile()->mutable_blocks(1)->mutable_instance()->set_forward_base_bytes(950 - rank);
    v1::TapeCosts* costs = report.add_costs();
    costs->set_structure_hash(kExampleHash);
    for (const double cost : {0.001 * (rank + 1), -1.0}) {
      costs->add_cost_seconds(cost);
      costs->add_replay_workspace_bytes(0);
    }
    v1::BlockTape tape = ExampleTape();
    tape.mutable_storages(1)->set_bytes(100 + rank);
    tape.mutable_storages(2)->set_bytes(100 - rank);
    ASSERT_TRUE(job_->AddTape(rank, ranks.back().get(), tape).ok());
    ASSERT_TRUE(job_->AddReport(rank, ranks.back().get(), report, ExpectStored()).ok());
  }
  const auto input = job_->MakePlanningInput();
  ASSERT_TRUE(input.ok()) << input.status();
  EXPECT_EQ(input->problem.head_peak_bytes, 1020);
  EXPECT_EQ(input->problem.blocks[1].forward_base_bytes, 950);
  EXPECT_DOUBLE_EQ(input->problem.tapes[0].ops[0].cost_seconds, 0.002);
  EXPECT_DOUBLE_EQ(input->problem.tapes[0].ops[1].cost_seconds, 0.001);  // nobody measured it: the tape's own
  EXPECT_EQ(input->problem.tapes[0].storages[1].bytes, 102);
  EXPECT_EQ(input->problem.tapes[0].storages[2].bytes, 100);
}

TEST_F(JobTest, CostsSurviveANewIncarnation) {
  const auto old = Connect(ExampleHello(0, 1, "first", 1));
  ASSERT_TRUE(job_->AddTape(0, old.get(), ExampleTape()).ok());
  v1::StepReport report = ExampleReport();
  report.add_costs()->set_structure_hash(kExampleHash);
  for (const double cost : {0.5, 0.25}) {
    report.mutable_costs(0)->add_cost_seconds(cost);
    report.mutable_costs(0)->add_replay_workspace_bytes(0);
  }
  ASSERT_TRUE(job_->AddReport(0, old.get(), report, ExpectStored()).ok());
  const auto young = Connect(ExampleHello(0, 1, "second", 2));
  EXPECT_TRUE(absl::IsFailedPrecondition(job_->MakePlanningInput().status()));
  ASSERT_TRUE(job_->AddReport(0, young.get(), ExampleReport(), ExpectStored()).ok());
  EXPECT_DOUBLE_EQ(job_->MakePlanningInput()->problem.tapes[0].ops[0].cost_seconds, 0.5);
}

TEST_F(JobTest, CostsMustFitTheTape) {
  const auto channel = Connect(ExampleHello());
  ASSERT_TRUE(job_->AddTape(0, channel.get(), ExampleTape()).ok());
  v1::StepReport report = ExampleReport(7);
  report.add_costs()->set_structure_hash(kExampleHash);
  report.mutable_costs(0)->add_cost_seconds(1);
  report.mutable_costs(0)->add_replay_workspace_bytes(1);
  const auto status = job_->AddReport(0, channel.get(), report, ExpectStored());
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0, step 7: costs of 1 ops for tape 000000000000abcd"));
}

TEST_F(JobTest, CostsOfAnotherRowOfOpsAreDropped) {
  const auto channel = Connect(ExampleHello());
  v1::StepReport report = ExampleReport();
  report.add_costs()->set_structure_hash(kExampleHash);
  report.mutable_costs(0)->add_cost_seconds(1);
  report.mutable_costs(0)->add_replay_workspace_bytes(1);
  ASSERT_TRUE(job_->AddReport(0, channel.get(), report, ExpectStored()).ok());  // before the tape: nothing to compare with
  ASSERT_TRUE(job_->AddTape(0, channel.get(), ExampleTape()).ok());
  const auto input = job_->MakePlanningInput();
  ASSERT_TRUE(input.ok()) << input.status();
  EXPECT_DOUBLE_EQ(input->problem.tapes[0].ops[0].cost_seconds, 0.010);
}

TEST_F(JobTest, LimitIsTheSmallestPositiveUnlessConstrained) {
  const auto limit_of = [this](std::vector<int64_t> limits) {
    job_ = MakeJob();
    static int incarnation = 100;
    ++incarnation;
    for (size_t rank = 0; rank < limits.size(); ++rank) {
      v1::Hello hello = ExampleHello(static_cast<int>(rank), static_cast<int>(limits.size()), std::to_string(incarnation));
      hello.set_memory_limit_bytes(limits[rank]);
      Connect(hello);
    }
    return job_->Summary().memory_limit_bytes();
  };
  EXPECT_EQ(limit_of({500, 300, 400}), 300);
  EXPECT_EQ(limit_of({-1, 0, 400}), 400);
  EXPECT_EQ(limit_of({-1, 0}), 0);
  EXPECT_EQ(limit_of({-1, -1}), -1);
  v1::Constraints constraints;
  constraints.set_memory_limit_bytes(0);
  ASSERT_TRUE(job_->SetConstraints(constraints).ok());
  EXPECT_EQ(job_->Summary().memory_limit_bytes(), 0);
}

TEST_F(JobTest, GenerationsAreAboveWhateverARankHolds) {
  v1::Hello hello = ExampleHello();
  hello.set_held_generation(8);
  hello.set_active_generation(7);
  const auto channel = Connect(hello);
  ASSERT_TRUE(job_->AddTape(0, channel.get(), ExampleTape()).ok());
  ASSERT_TRUE(job_->AddReport(0, channel.get(), ExampleReport(), ExpectStored()).ok());
  EXPECT_EQ(job_->MakePlanningInput()->next_generation, 9);
}

TEST_F(JobTest, ARankThatHoldsLessGetsTheCommittedPlanAgain) {
  const auto channel = Connect(ExampleHello());
  ASSERT_TRUE(job_->AddTape(0, channel.get(), ExampleTape()).ok());
  ASSERT_TRUE(job_->AddReport(0, channel.get(), ExampleReport(), ExpectStored()).ok());
  Commit(3);
  ASSERT_EQ(channel->plans().size(), 1);
  EXPECT_EQ(channel->plans()[0]->generation(), 3);

  const auto again = Connect(ExampleHello());
  ASSERT_EQ(again->plans().size(), 1);
  EXPECT_EQ(again->plans()[0]->generation(), 3);

  v1::Hello holds_it = ExampleHello();
  holds_it.set_held_generation(3);
  EXPECT_THAT(Connect(holds_it)->plans(), IsEmpty());
  EXPECT_EQ(job_->MakePlanningInput()->forced_reason, "");

  v1::Hello ahead = ExampleHello();
  ahead.set_held_generation(5);
  Connect(ahead);
  const auto input = job_->MakePlanningInput();
  EXPECT_TRUE(input->recommit);
  EXPECT_EQ(input->next_generation, 6);
  EXPECT_THAT(input->forced_reason, HasSubstr("rank 0 holds generation 5, above the server's 3"));
}

TEST_F(JobTest, ChangesForceAPlanOnlyOnce) {
  const auto channel = Connect(ExampleHello());
  ASSERT_TRUE(job_->AddTape(0, channel.get(), ExampleTape()).ok());
  ASSERT_TRUE(job_->AddReport(0, channel.get(), ExampleReport(), ExpectStored()).ok());
  Commit(1);
  EXPECT_EQ(job_->MakePlanningInput()->forced_reason, "");
  v1::Constraints constraints;
  constraints.set_memory_limit_bytes(1200);
  ASSERT_TRUE(job_->SetConstraints(constraints).ok());
  EXPECT_EQ(job_->MakePlanningInput()->forced_reason, "the limit changed from 1300 bytes to 1200 bytes");
  Commit(2);
  EXPECT_EQ(job_->MakePlanningInput()->forced_reason, "");
  v1::Pin* pin = constraints.add_pins();
  pin->set_label_glob("aten::op1");
  pin->set_action(v1::ACTION_REPLAY);
  ASSERT_TRUE(job_->SetConstraints(constraints).ok());
  const auto input = job_->MakePlanningInput();
  EXPECT_EQ(input->forced_reason, "the constraints changed");
  EXPECT_TRUE(input->problem.tapes[input->problem.blocks[0].tape].storages[1].must_recompute);
  job_->Confirm(*input);
  EXPECT_EQ(job_->MakePlanningInput()->forced_reason, "");
}

TEST_F(JobTest, MeasurementsAreNewOncePerRoundOfAllRanks) {
  const auto zero = Connect(ExampleHello(0, 2));
  const auto one = Connect(ExampleHello(1, 2));
  ASSERT_TRUE(job_->AddTape(0, zero.get(), ExampleTape()).ok());
  ASSERT_TRUE(job_->AddReport(0, zero.get(), ExampleReport(), ExpectStored()).ok());
  ASSERT_TRUE(job_->AddReport(1, one.get(), ExampleReport(), ExpectStored()).ok());
  EXPECT_TRUE(job_->PeekPlanningInput()->newly_measured);  // a question does not use the round up
  EXPECT_TRUE(job_->MakePlanningInput()->newly_measured);
  ASSERT_TRUE(job_->AddReport(1, one.get(), ExampleReport(2), ExpectStored()).ok());
  EXPECT_FALSE(job_->MakePlanningInput()->newly_measured);
  ASSERT_TRUE(job_->AddReport(0, zero.get(), ExampleReport(2), ExpectStored()).ok());
  EXPECT_TRUE(job_->MakePlanningInput()->newly_measured);
}

TEST_F(JobTest, APlanOfAnOlderIncarnationIsNotAdopted) {
  const auto old = Connect(ExampleHello(0, 1, "first", 1));
  ASSERT_TRUE(job_->AddTape(0, old.get(), ExampleTape()).ok());
  ASSERT_TRUE(job_->AddReport(0, old.get(), ExampleReport(), ExpectStored()).ok());
  const auto input = job_->MakePlanningInput();
  const auto young = Connect(ExampleHello(0, 1, "second", 2));
  v1::Plan plan;
  plan.set_generation(4);
  EXPECT_FALSE(job_->Adopt(*input, plan));
  EXPECT_THAT(young->plans(), IsEmpty());
  ASSERT_TRUE(job_->AddReport(0, young.get(), ExampleReport(), ExpectStored()).ok());
  EXPECT_EQ(job_->MakePlanningInput()->next_generation, 5);
}

TEST_F(JobTest, ComparesMeasuredPeaksWithThePrediction) {
  const auto channel = Connect(ExampleHello());
  ASSERT_TRUE(job_->AddTape(0, channel.get(), ExampleTape()).ok());
  ASSERT_TRUE(job_->AddReport(0, channel.get(), ExampleReport(), ExpectStored()).ok());
  Commit(1);
  EXPECT_EQ(job_->Summary().state(), v1::JobSummary::STATE_SWITCHING);
  v1::StepReport report;
  report.set_step(5);
  report.set_step_peak_bytes(2000);
  ASSERT_TRUE(job_->AddReport(0, channel.get(), report, ExpectStored()).ok());
  EXPECT_FALSE(job_->Summary().has_peak_residual_ratio());  // a step of an earlier generation says nothing
  v1::PlanActivated activated;
  activated.set_generation(1);
  activated.set_step(6);
  ASSERT_TRUE(job_->AddPlanActivated(0, channel.get(), activated, ExpectStored()).ok());
  EXPECT_EQ(job_->Summary().state(), v1::JobSummary::STATE_RUNNING);
  report.set_generation(1);
  report.set_step_peak_bytes(1313);
  ASSERT_TRUE(job_->AddReport(0, channel.get(), report, ExpectStored()).ok());
  EXPECT_DOUBLE_EQ(job_->Summary().peak_residual_ratio(), 0.01);
  EXPECT_EQ(job_->Describe().events().rbegin()->text(), "all ranks run generation 1 from step 6");
}

TEST_F(JobTest, ARankSaysWhyItCannotFollow) {
  const auto channel = Connect(ExampleHello());
  v1::PlanHeld held;
  held.set_generation(2);
  held.set_error("unknown block");
  ASSERT_TRUE(job_->AddPlanHeld(0, channel.get(), held, ExpectStored()).ok());
  EXPECT_EQ(job_->Describe().ranks(0).plan_error(), "unknown block");
  EXPECT_EQ(job_->Describe().ranks(0).held_generation(), 0);
  held.clear_error();
  ASSERT_TRUE(job_->AddPlanHeld(0, channel.get(), held, ExpectStored()).ok());
  EXPECT_EQ(job_->Describe().ranks(0).plan_error(), "");
  EXPECT_EQ(job_->Describe().ranks(0).held_generation(), 2);
}

TEST_F(JobTest, SilenceIsMeasuredByTheServersClock) {
  const auto channel = Connect(ExampleHello());
  clock_.Advance(absl::Seconds(30));
  EXPECT_DOUBLE_EQ(job_->Describe().ranks(0).silent_seconds(), 30);
  ASSERT_TRUE(job_->AddReport(0, channel.get(), ExampleReport(), ExpectStored()).ok());
  EXPECT_DOUBLE_EQ(job_->Describe().ranks(0).silent_seconds(), 0);
}

TEST_F(JobTest, RestoresWhatTheStoreKnows) {
  const auto channel = Connect(ExampleHello(0, 1, "first", 10));
  ASSERT_TRUE(job_->AddTape(0, channel.get(), ExampleTape()).ok());
  ASSERT_TRUE(job_->AddReport(0, channel.get(), ExampleReport(), ExpectStored()).ok());
  v1::Constraints constraints;
  constraints.set_memory_limit_bytes(1234);
  ASSERT_TRUE(job_->SetConstraints(constraints).ok());
  Commit(3);

  job_ = MakeJob();
  ASSERT_TRUE(job_->Restore().ok());
  EXPECT_EQ(job_->committed()->generation(), 3);
  EXPECT_EQ(job_->constraints().memory_limit_bytes(), 1234);
  EXPECT_TRUE(absl::IsFailedPrecondition(
      job_->Connect(ExampleHello(0, 1, "zeroth", 9), std::make_shared<FakeRankChannel>(), ExpectStored()).status()));
  auto again = std::make_shared<FakeRankChannel>();
  EXPECT_THAT(job_->Connect(ExampleHello(0, 1, "first", 10), again, ExpectStored())->missing_tapes(), IsEmpty());
  ASSERT_EQ(again->plans().size(), 1);
  EXPECT_EQ(again->plans()[0]->generation(), 3);
}

TEST_F(JobTest, RanksThatRanDifferentBlocksAreAnError) {
  const auto zero = Connect(ExampleHello(0, 2));
  const auto one = Connect(ExampleHello(1, 2));
  ASSERT_TRUE(job_->AddTape(0, zero.get(), ExampleTape()).ok());
  v1::StepReport shorter = ExampleReport();
  shorter.mutable_profile()->mutable_blocks()->RemoveLast();
  ASSERT_TRUE(job_->AddReport(0, zero.get(), ExampleReport(), ExpectStored()).ok());
  ASSERT_TRUE(job_->AddReport(1, one.get(), shorter, ExpectStored()).ok());
  const auto status = job_->MakePlanningInput().status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 ran 1 blocks"));
}

TEST_F(JobTest, EqualTapesOfManyRanksAreTakenOnce) {
  const auto zero = Connect(ExampleHello(0, 2));
  const auto one = Connect(ExampleHello(1, 2));
  ASSERT_TRUE(job_->AddTape(0, zero.get(), ExampleTape()).ok());
  const int64_t revision = store_.GetJob("example")->revision;
  ASSERT_TRUE(job_->AddTape(1, one.get(), ExampleTape()).ok());
  v1::BlockTape larger = ExampleTape();
  larger.mutable_storages(1)->set_bytes(500);
  EXPECT_EQ(store_.GetJob("example")->revision, revision);
  ASSERT_TRUE(job_->AddTape(1, one.get(), larger).ok());
  EXPECT_EQ(store_.GetTape("example", kExampleHash)->storages(1).bytes(), 500);
  // The smaller one again changes nothing, another shape and back does.
  ASSERT_TRUE(job_->AddTape(0, zero.get(), ExampleTape()).ok());
  EXPECT_EQ(store_.GetTape("example", kExampleHash)->storages(1).bytes(), 500);
  v1::BlockTape reshaped = ExampleTape();
  reshaped.mutable_ops(1)->set_name("aten::other");
  ASSERT_TRUE(job_->AddTape(1, one.get(), reshaped).ok());
  EXPECT_EQ(store_.GetTape("example", kExampleHash)->ops(1).name(), "aten::other");
  ASSERT_TRUE(job_->AddTape(1, one.get(), ExampleTape()).ok());
  EXPECT_EQ(store_.GetTape("example", kExampleHash)->ops(1).name(), "aten::op2");
}

}  // namespace
}  // namespace tidetape::server
