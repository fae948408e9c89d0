// What the contract of store.h asks of durable backends beside contract_suite.h, as tests; instantiated like those.
#ifndef TIDETAPE_SERVER_STORE_DURABLE_CONTRACT_SUITE_H_
#define TIDETAPE_SERVER_STORE_DURABLE_CONTRACT_SUITE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/store/contract_fixture.h"
#include "server/store/store.h"

namespace tidetape::server {

class DurableStoreContract : public StoreContract {};

TEST_P(DurableStoreContract, IsAsItWasWhenItIsOpenedAgain) {
  ASSERT_TRUE(store_->Durable());
  StartJob();
  ASSERT_TRUE(put_tape("a", MakeTape(5, 55)).ok());
  RankUpdate update = MakeReport("i", 1, 7);
  update.hello.emplace().set_node("node1");
  update.profile.emplace().set_steady(true);
  update.standing = {4, 3, ""};
  update.costs = {MakeCosts(5, 0.25)};
  ASSERT_TRUE(UpdateRank("a", update).ok());
  v1::Constraints constraints;
  constraints.set_memory_limit_bytes(99);
  ASSERT_TRUE(store_->PutConstraints("a", constraints).ok());
  for (int generation = 1; generation <= 2 * Store::kKeptPlans; ++generation) {
    ASSERT_TRUE(store_->CommitPlan(MakePlan("a", generation)).ok());
  }
  ASSERT_TRUE(store_->PutEnd("a", JobEnd{absl::FromUnixMicros(3), "finished", false}).ok());
  v1::KnownRun run;
  run.set_job("a");
  ASSERT_TRUE(store_->PutKnownRun({1, 2}, run, absl::FromUnixSeconds(1), 1000).ok());
  Reopen();
  EXPECT_EQ(store_->GetKnownRun({1, 2}).value().job(), "a");
  EXPECT_THAT(store_->ListJobs().value(), testing::ElementsAre("a"));
  EXPECT_EQ(store_->GetJob("a").value().revision, 2);
  EXPECT_EQ(store_->GetJob("a").value().end->reason, "finished");
  EXPECT_EQ(store_->ListIncarnations("a").value()[0].id, "i");
  EXPECT_EQ(store_->GetTape("a", 5).value().storages(0).bytes(), 55);
  const auto ranks = store_->ListRanks("a").value();
  ASSERT_EQ(ranks.size(), 1);
  EXPECT_EQ(ranks[0].hello.node(), "node1");
  EXPECT_EQ(ranks[0].report->step(), 7);
  EXPECT_TRUE(ranks[0].profile->steady());
  EXPECT_EQ(ranks[0].reports, 1);
  EXPECT_EQ(ranks[0].standing.held_generation, 4);
  EXPECT_EQ(store_->ListCosts("a").value()[0].costs.cost_seconds(0), 0.25);
  EXPECT_EQ(store_->GetConstraints("a").value().memory_limit_bytes(), 99);
  EXPECT_EQ(store_->ListPlans("a", 1).value()[0].generation(), 2 * Store::kKeptPlans);
  EXPECT_TRUE(absl::IsFailedPrecondition(store_->CommitPlan(MakePlan("a", 2 * Store::kKeptPlans - 1))));
  EXPECT_TRUE(absl::IsFailedPrecondition(store_->AddIncarnation("a", {.id = "j"}).ok() ? store_->AddIncarnation("a", {.id = "i"})
                                                                                       : absl::OkStatus()));
}

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_DURABLE_CONTRACT_SUITE_H_
