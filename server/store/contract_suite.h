// The contract of store.h as tests. A backend instantiates the suite with a function that opens the store at a place; a durable one
// finds there what an earlier store at the place has kept:
//
//   INSTANTIATE_TEST_SUITE_P(Memory, StoreContract, testing::Values([](const std::string&) { return
//   std::make_unique<MemoryStore>(); }));
#ifndef TIDETAPE_SERVER_STORE_CONTRACT_SUITE_H_
#define TIDETAPE_SERVER_STORE_CONTRACT_SUITE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "server/store/contract_fixture.h"
#include "server/store/faulty_store.h"
#include "server/store/known_run_suite.h"
#include "server/store/store.h"

namespace tidetape::server {

TEST_P(StoreContract, StartsEmpty) { EXPECT_THAT(store_->ListJobs().value(), testing::IsEmpty()); }

TEST_P(StoreContract, EverythingOfAnUnknownJobIsNotFound) {
  const auto is_not_found = [](const absl::Status& status) {
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    EXPECT_NE(status.message().find("ghost"), absl::string_view::npos) << status;
  };
  is_not_found(store_->GetJob("ghost").status());
  is_not_found(store_->PutEnd("ghost", JobEnd()));
  is_not_found(store_->AddIncarnation("ghost", {.id = "i"}));
  is_not_found(store_->ListIncarnations("ghost").status());
  is_not_found(put_tape("ghost", v1::BlockTape()));
  is_not_found(store_->GetTape("ghost", 1).status());
  is_not_found(store_->ListTapes("ghost").status());
  is_not_found(UpdateRank("ghost", MakeReport("i", 0, 1)));
  is_not_found(store_->ListRanks("ghost").status());
  is_not_found(store_->ListCosts("ghost").status());
  is_not_found(store_->CommitPlan(MakePlan("ghost", 1)));
  is_not_found(store_->ListPlans("ghost", 1).status());
  is_not_found(store_->PutConstraints("ghost", v1::Constraints()));
  is_not_found(store_->GetConstraints("ghost").status());
  EXPECT_THAT(store_->ListJobs().value(), testing::IsEmpty());
}

TEST_P(StoreContract, JobsAreListedByNameAndNeedOne) {
  ASSERT_TRUE(store_->CreateJob("b").ok());
  ASSERT_TRUE(store_->CreateJob("a").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(store_->CreateJob("")));
  EXPECT_THAT(store_->ListJobs().value(), testing::ElementsAre("a", "b"));
}

TEST_P(StoreContract, CreatingAJobAgainKeepsItsContent) {
  ASSERT_TRUE(store_->CreateJob("a").ok());
  ASSERT_TRUE(store_->CommitPlan(MakePlan("a", 3)).ok());
  ASSERT_TRUE(store_->CreateJob("a").ok());
  EXPECT_EQ(store_->ListPlans("a", 1).value().size(), 1);
}

TEST_P(StoreContract, DeletingAJobForgetsAllOfIt) {
  ASSERT_TRUE(store_->CreateJob("a").ok());
  ASSERT_TRUE(store_->CommitPlan(MakePlan("a", 3)).ok());
  ASSERT_TRUE(store_->DeleteJob("a").ok());
  ASSERT_TRUE(store_->CreateJob("a").ok());
  EXPECT_THAT(store_->ListPlans("a", 10).value(), testing::IsEmpty());
  EXPECT_TRUE(store_->CommitPlan(MakePlan("a", 1)).ok());
  EXPECT_TRUE(store_->DeleteJob("ghost").ok());
}

TEST_P(StoreContract, ADeletedJobTakesItsRanksTapesAndCostsAlong) {
  for (const char* job : {"a", "b"}) {
    ASSERT_TRUE(store_->CreateJob(job).ok());
    ASSERT_TRUE(store_->AddIncarnation(job, {.id = "i", .world_size = 1}).ok());
    ASSERT_TRUE(put_tape(job, MakeTape(1)).ok());
    RankUpdate update = MakeReport("i", 0, 1);
    update.costs = {MakeCosts(1, 0.5)};
    ASSERT_TRUE(UpdateRank(job, update).ok());
  }
  ASSERT_TRUE(store_->DeleteJob("a").ok());
  EXPECT_THAT(store_->ListJobs().value(), testing::ElementsAre("b"));
  ASSERT_TRUE(store_->CreateJob("a").ok());
  EXPECT_THAT(store_->ListIncarnations("a").value(), testing::IsEmpty());
  EXPECT_THAT(store_->ListTapes("a").value(), testing::IsEmpty());
  EXPECT_THAT(store_->ListRanks("a").value(), testing::IsEmpty());
  EXPECT_THAT(store_->ListCosts("a").value(), testing::IsEmpty());
  EXPECT_EQ(store_->ListRanks("b").value().size(), 1);
  EXPECT_EQ(store_->ListCosts("b").value().size(), 1);
  EXPECT_EQ(store_->ListTapes("b").value().size(), 1);
}

TEST_P(StoreContract, IncarnationsKeepTheirOrderAndFields) {
  ASSERT_TRUE(store_->CreateJob("a").ok());
  const absl::Time seen = absl::FromUnixMicros(1'700'000'000'123'456);
  ASSERT_TRUE(store_->AddIncarnation("a", {"z", 5, 2, seen, "cpu", "2.14.1"}).ok());
  ASSERT_TRUE(store_->AddIncarnation("a", {"y", 4, 3, seen, "cpu", "2.14.1"}).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(store_->AddIncarnation("a", {.id = "z"})));
  const auto incarnations = store_->ListIncarnations("a").value();
  ASSERT_EQ(incarnations.size(), 2);
  EXPECT_EQ(incarnations[0].id, "z");
  EXPECT_EQ(incarnations[0].order, 5);
  EXPECT_EQ(incarnations[0].world_size, 2);
  EXPECT_EQ(incarnations[0].first_seen, seen);
  EXPECT_EQ(incarnations[0].device, "cpu");
  EXPECT_EQ(incarnations[0].torch_version, "2.14.1");
  EXPECT_EQ(incarnations[1].id, "y");
}

TEST_P(StoreContract, TapesComeBackAsTheyWerePut) {
  ASSERT_TRUE(store_->CreateJob("a").ok());
  v1::BlockTape tape;
  tape.set_structure_hash(0xFFFFFFFFFFFFFFFFu);
  tape.set_name("model.layers.0");
  tape.add_storages()->set_bytes(int64_t{1} << 40);
  tape.add_ops()->set_cost_seconds(0.1);
  ASSERT_TRUE(put_tape("a", tape).ok());
  EXPECT_EQ(store_->GetTape("a", tape.structure_hash()).value().SerializeAsString(), tape.SerializeAsString());
  EXPECT_TRUE(absl::IsNotFound(store_->GetTape("a", 7).status()));

  tape.mutable_storages(0)->set_bytes(8);
  ASSERT_TRUE(put_tape("a", tape).ok());
  EXPECT_EQ(store_->GetTape("a", tape.structure_hash()).value().storages(0).bytes(), 8);
  tape.set_structure_hash(3);
  ASSERT_TRUE(put_tape("a", tape).ok());
  EXPECT_THAT(store_->ListTapes("a").value(), testing::ElementsAre(3u, 0xFFFFFFFFFFFFFFFFu));
}

TEST_P(StoreContract, TapesOfJobsAreApart) {
  ASSERT_TRUE(store_->CreateJob("a").ok());
  ASSERT_TRUE(store_->CreateJob("b").ok());
  v1::BlockTape tape;
  tape.set_structure_hash(1);
  ASSERT_TRUE(put_tape("a", tape).ok());
  EXPECT_TRUE(absl::IsNotFound(store_->GetTape("b", 1).status()));
}

TEST_P(StoreContract, GenerationsOnlyGrow) {
  ASSERT_TRUE(store_->CreateJob("a").ok());
  ASSERT_TRUE(store_->CommitPlan(MakePlan("a", 5)).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(store_->CommitPlan(MakePlan("a", 4))));
  ASSERT_TRUE(store_->CommitPlan(MakePlan("a", 9)).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(store_->CommitPlan(MakePlan("a", 5))));
  const auto plans = store_->ListPlans("a", 10).value();
  ASSERT_EQ(plans.size(), 2);
  EXPECT_EQ(plans[0].generation(), 9);
  EXPECT_EQ(plans[1].generation(), 5);
  EXPECT_EQ(store_->ListPlans("a", 1).value().size(), 1);
  EXPECT_THAT(store_->ListPlans("a", 0).value(), testing::IsEmpty());
}

TEST_P(StoreContract, TheNewestPlansAreKept) {
  ASSERT_TRUE(store_->CreateJob("a").ok());
  const int last = 3 * Store::kKeptPlans;
  for (int generation = 1; generation <= last; ++generation) ASSERT_TRUE(store_->CommitPlan(MakePlan("a", generation)).ok());
  const auto plans = store_->ListPlans("a", Store::kKeptPlans).value();
  ASSERT_EQ(plans.size(), Store::kKeptPlans);
  for (int i = 0; i < Store::kKeptPlans; ++i) EXPECT_EQ(plans[i].generation(), last - i);
}

TEST_P(StoreContract, ConstraintsAreReplaced) {
  ASSERT_TRUE(store_->CreateJob("a").ok());
  EXPECT_FALSE(store_->GetConstraints("a").value().has_memory_limit_bytes());
  v1::Constraints constraints;
  constraints.set_memory_limit_bytes(0);
  constraints.add_pins()->set_label_glob("aten::mm*");
  ASSERT_TRUE(store_->PutConstraints("a", constraints).ok());
  EXPECT_TRUE(store_->GetConstraints("a").value().has_memory_limit_bytes());
  EXPECT_EQ(store_->GetConstraints("a").value().pins_size(), 1);
  ASSERT_TRUE(store_->PutConstraints("a", v1::Constraints()).ok());
  EXPECT_EQ(store_->GetConstraints("a").value().pins_size(), 0);
}

// Of two threads that commit the same generation, one wins each time.
TEST_P(StoreContract, ConcurrentCommitsDoNotShareAGeneration) {
  ASSERT_TRUE(store_->CreateJob("a").ok());
  constexpr int kGenerations = 50;
  std::atomic<int> committed = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([this, thread, &committed] {
      for (int generation = 1; generation <= kGenerations; ++generation) {
        v1::Plan plan = MakePlan("a", generation);
        plan.set_etag(std::to_string(thread));
        if (store_->CommitPlan(plan).ok()) ++committed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto plans = store_->ListPlans("a", kGenerations).value();
  EXPECT_EQ(committed, static_cast<int>(plans.size()));
  for (size_t i = 1; i < plans.size(); ++i) EXPECT_LT(plans[i].generation(), plans[i - 1].generation());
}

TEST_P(StoreContract, ARankIsAsItsNewestMessagesLeftIt) {
  StartJob();
  RankUpdate first = MakeReport("i", 1, 7);
  first.hello.emplace().set_node("node1");
  first.profile.emplace().set_head_peak_bytes(77);
  first.standing = {3, 2, "no such block"};
  ASSERT_TRUE(UpdateRank("a", first).ok());
  ASSERT_TRUE(UpdateRank("a", MakeReport("i", 0, 1)).ok());
  ASSERT_TRUE(UpdateRank("a", MakeReport("i", 1, 8)).ok());
  RankUpdate only_standing;
  only_standing.incarnation = "i";
  only_standing.rank = 0;
  only_standing.heard = absl::FromUnixMicros(5);
  only_standing.standing = {9, 8, ""};
  ASSERT_TRUE(UpdateRank("a", only_standing).ok());

  const auto ranks = store_->ListRanks("a").value();
  ASSERT_EQ(ranks.size(), 2);
  EXPECT_EQ(ranks[0].rank, 0);
  EXPECT_EQ(ranks[0].report->step(), 1);
  EXPECT_EQ(ranks[0].reports, 1);
  EXPECT_EQ(ranks[0].standing.held_generation, 9);
  EXPECT_EQ(ranks[0].standing.active_generation, 8);
  EXPECT_EQ(ranks[0].heard, absl::FromUnixMicros(5));
  EXPECT_FALSE(ranks[0].profile.has_value());
  EXPECT_EQ(ranks[1].rank, 1);
  EXPECT_EQ(ranks[1].hello.node(), "node1");
  EXPECT_EQ(ranks[1].report->step(), 8);
  EXPECT_EQ(ranks[1].profile->head_peak_bytes(), 77);
  EXPECT_EQ(ranks[1].reports, 2);
  EXPECT_EQ(ranks[1].standing.held_generation, 3);
  EXPECT_EQ(ranks[1].standing.error, "no such block");
}

TEST_P(StoreContract, TextsMayHoldAnyByte) {
  StartJob();
  const std::string odd("\0\x01\xC3\xA9'\";--", 9);
  RankUpdate update = MakeReport("i", 0, 1);
  update.standing = {1, 0, odd};
  update.hello.emplace().set_device(std::string("a\0b", 3));
  ASSERT_TRUE(UpdateRank("a", update).ok());
  ASSERT_TRUE(store_->AddIncarnation("a", {.id = "j", .world_size = 2, .device = odd}).ok());
  EXPECT_EQ(store_->ListIncarnations("a").value()[1].device, odd);
  update.incarnation = "j";
  ASSERT_TRUE(UpdateRank("a", update).ok());
  EXPECT_EQ(store_->ListRanks("a").value()[0].standing.error, odd);
  EXPECT_EQ(store_->ListRanks("a").value()[0].hello.device(), std::string("a\0b", 3));
}

TEST_P(StoreContract, RanksBelongToTheCurrentIncarnation) {
  StartJob();
  ASSERT_TRUE(UpdateRank("a", MakeReport("i", 1, 7)).ok());
  ASSERT_TRUE(store_->AddIncarnation("a", {.id = "j", .world_size = 2}).ok());
  EXPECT_THAT(store_->ListRanks("a").value(), testing::IsEmpty());
  EXPECT_TRUE(absl::IsFailedPrecondition(UpdateRank("a", MakeReport("i", 1, 8))));
  EXPECT_THAT(store_->ListRanks("a").value(), testing::IsEmpty());
  ASSERT_TRUE(UpdateRank("a", MakeReport("j", 1, 1)).ok());
  EXPECT_EQ(store_->ListRanks("a").value()[0].reports, 1);
}

TEST_P(StoreContract, CostsAreReplacedByRankAndTapeAndOutliveIncarnations) {
  StartJob();
  const uint64_t large = 0xFFFFFFFFFFFFFFFFu;
  RankUpdate update = MakeReport("i", 1, 1);
  update.costs = {MakeCosts(large, 1), MakeCosts(2, 2)};
  ASSERT_TRUE(UpdateRank("a", update).ok());
  update.costs = {MakeCosts(large, 3)};
  ASSERT_TRUE(UpdateRank("a", update).ok());
  update.rank = 0;
  ASSERT_TRUE(UpdateRank("a", update).ok());
  ASSERT_TRUE(store_->AddIncarnation("a", {.id = "j", .world_size = 2}).ok());
  auto costs = store_->ListCosts("a").value();
  ASSERT_EQ(costs.size(), 3);
  EXPECT_EQ(costs[0].rank, 0);
  EXPECT_EQ(costs[1].costs.structure_hash(), 2);
  EXPECT_EQ(costs[1].costs.cost_seconds(0), 2);
  EXPECT_EQ(costs[2].costs.structure_hash(), large);
  EXPECT_EQ(costs[2].costs.cost_seconds(0), 3);

  // A tape of another shape, and a start of the job with fewer ranks.
  ASSERT_TRUE(store_->PutTape("a", MakeTape(2), Store::KnownCosts::kKeep).ok());
  EXPECT_EQ(store_->ListCosts("a").value().size(), 3);
  ASSERT_TRUE(store_->PutTape("a", MakeTape(2), Store::KnownCosts::kForget).ok());
  EXPECT_EQ(store_->ListCosts("a").value().size(), 2);
  ASSERT_TRUE(store_->AddIncarnation("a", {.id = "k", .world_size = 1}).ok());
  costs = store_->ListCosts("a").value();
  ASSERT_EQ(costs.size(), 1);
  EXPECT_EQ(costs[0].rank, 0);
}

// Each rank's updates come from a thread of their own, and outcomes come in the order of the calls.
TEST_P(StoreContract, ManyUpdatesAreAllCounted) {
  ASSERT_TRUE(store_->CreateJob("a").ok());
  constexpr int kRanks = 4, kReports = 200;
  ASSERT_TRUE(store_->AddIncarnation("a", {.id = "i", .world_size = kRanks}).ok());
  std::vector<std::thread> threads;
  std::vector<std::vector<int>> told(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([this, rank, &told] {
      absl::BlockingCounter left(kReports);
      for (int step = 1; step <= kReports; ++step) {
        store_->UpdateRank("a", MakeReport("i", rank, step), [&, step](const absl::Status& status) {
          if (status.ok()) told[rank].push_back(step);
          left.DecrementCount();
        });
      }
      left.Wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<int> in_order(kReports);
  std::iota(in_order.begin(), in_order.end(), 1);
  for (const auto& steps : told) EXPECT_EQ(steps, in_order);
  const std::vector<RankRecord> ranks = store_->ListRanks("a").value();
  for (const RankRecord& rank : ranks) {
    EXPECT_EQ(rank.reports, kReports);
    EXPECT_EQ(rank.report->step(), kReports);
  }
}

TEST_P(StoreContract, TapesAndConstraintsCountTheRevision) {
  StartJob();
  EXPECT_EQ(store_->GetJob("a").value().revision, 0);
  ASSERT_TRUE(put_tape("a", MakeTape(5)).ok());
  ASSERT_TRUE(put_tape("a", MakeTape(5)).ok());
  EXPECT_EQ(store_->GetJob("a").value().revision, 2);
  ASSERT_TRUE(store_->PutConstraints("a", v1::Constraints()).ok());
  ASSERT_TRUE(UpdateRank("a", MakeReport("i", 1, 7)).ok());
  EXPECT_EQ(store_->GetJob("a").value().revision, 3);
}

TEST_P(StoreContract, JobsEndAndRunAgain) {
  StartJob();
  EXPECT_FALSE(store_->GetJob("a").value().end.has_value());
  const absl::Time at = absl::FromUnixMicros(1'700'000'000'000'001);
  ASSERT_TRUE(store_->PutEnd("a", JobEnd{at, "silent", true}).ok());
  const JobEnd end = store_->GetJob("a").value().end.value();
  EXPECT_EQ(end.at, at);
  EXPECT_EQ(end.reason, "silent");
  EXPECT_TRUE(end.refuses);
  ASSERT_TRUE(store_->PutEnd("a", std::nullopt).ok());
  EXPECT_FALSE(store_->GetJob("a").value().end.has_value());
}

TEST_P(StoreContract, AWriteCanBeTried) { EXPECT_TRUE(store_->Check().ok()); }

// Every write, with the answer lost: it may be repeated, and has then happened once.
TEST_P(StoreContract, AWriteWhoseAnswerWasLostCanBeRepeated) {
  FaultyStore faulty(store_.get());
  v1::Constraints constraints;
  constraints.set_memory_limit_bytes(99);
  const std::vector<std::function<absl::Status()>> writes = {
      [&] { return faulty.CreateJob("a"); },
      [&] { return faulty.AddIncarnation("a", {.id = "i", .order = 4, .world_size = 2}); },
      [&] { return faulty.PutTape("a", MakeTape(5), Store::KnownCosts::kKeep); },
      [&] { return UpdateRank(faulty, "a", MakeReport("i", 1, 7)); },
      [&] { return faulty.CommitPlan(MakePlan("a", 3)); },
      [&] { return faulty.PutConstraints("a", constraints); },
      [&] {
        return faulty.PutEnd("a", JobEnd{absl::FromUnixMicros(3), "finished", false});
      },
      [&] { return faulty.Check(); },
  };
  for (const FaultyStore::Fault fault : {FaultyStore::Fault::kBeforeRequest, FaultyStore::Fault::kAfterResponse}) {
    for (const auto& write : writes) {
      faulty.Fail(fault);
      EXPECT_TRUE(absl::IsUnavailable(write()));
      EXPECT_TRUE(write().ok());
    }
    EXPECT_THAT(store_->ListJobs().value(), testing::ElementsAre("a"));
    EXPECT_EQ(store_->ListIncarnations("a").value().size(), 1);
    EXPECT_EQ(store_->ListTapes("a").value().size(), 1);
    EXPECT_EQ(store_->ListPlans("a", 10).value().size(), 1);
    EXPECT_EQ(store_->ListRanks("a").value()[0].report->step(), 7);
    EXPECT_EQ(store_->ListRanks("a").value()[0].reports, fault == FaultyStore::Fault::kBeforeRequest ? 1 : 2);
    EXPECT_EQ(store_->GetConstraints("a").value().memory_limit_bytes(), 99);
    faulty.Fail(fault);
    EXPECT_TRUE(absl::IsUnavailable(faulty.DeleteJob("a")));
    EXPECT_TRUE(faulty.DeleteJob("a").ok());
    EXPECT_THAT(store_->ListJobs().value(), testing::IsEmpty());
  }
}

TEST_P(StoreContract, OnlyThePlanItselfIsTheSamePlan) {
  ASSERT_TRUE(store_->CreateJob("a").ok());
  ASSERT_TRUE(store_->CommitPlan(MakePlan("a", 3)).ok());
  EXPECT_TRUE(store_->CommitPlan(MakePlan("a", 3)).ok());
  v1::Plan other = MakePlan("a", 3);
  other.set_etag("other");
  EXPECT_TRUE(absl::IsFailedPrecondition(store_->CommitPlan(other)));
  EXPECT_EQ(store_->ListPlans("a", 1).value()[0].etag(), "3");
}

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_CONTRACT_SUITE_H_
