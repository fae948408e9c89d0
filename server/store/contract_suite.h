// The contract of store.h as tests. A backend instantiates the suite with a function that makes an empty store:
//
//   INSTANTIATE_TEST_SUITE_P(Memory, StoreContract, testing::Values([] { return std::make_unique<MemoryStore>(); }));
#ifndef TIDETAPE_SERVER_STORE_CONTRACT_SUITE_H_
#define TIDETAPE_SERVER_STORE_CONTRACT_SUITE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/store/store.h"

namespace tidetape::server {

class StoreContract : public testing::TestWithParam<std::function<std::unique_ptr<Store>()>> {
 protected:
  StoreContract() : store_(GetParam()()) {}

  static v1::Plan MakePlan(const std::string& job, int64_t generation) {
    v1::Plan plan;
    plan.set_job(job);
    plan.set_generation(generation);
    plan.set_etag(std::to_string(generation));
    return plan;
  }

  std::unique_ptr<Store> store_;
};

TEST_P(StoreContract, StartsEmpty) { EXPECT_THAT(store_->ListJobs().value(), testing::IsEmpty()); }

TEST_P(StoreContract, EverythingOfAnUnknownJobIsNotFound) {
  const auto is_not_found = [](const absl::Status& status) {
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    EXPECT_NE(status.message().find("ghost"), absl::string_view::npos) << status;
  };
  is_not_found(store_->DeleteJob("ghost"));
  is_not_found(store_->AddIncarnation("ghost", {.id = "i"}));
  is_not_found(store_->ListIncarnations("ghost").status());
  is_not_found(store_->PutTape("ghost", v1::BlockTape()));
  is_not_found(store_->GetTape("ghost", 1).status());
  is_not_found(store_->ListTapes("ghost").status());
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
  ASSERT_TRUE(store_->PutTape("a", tape).ok());
  EXPECT_EQ(store_->GetTape("a", tape.structure_hash()).value().SerializeAsString(), tape.SerializeAsString());
  EXPECT_TRUE(absl::IsNotFound(store_->GetTape("a", 7).status()));

  tape.mutable_storages(0)->set_bytes(8);
  ASSERT_TRUE(store_->PutTape("a", tape).ok());
  EXPECT_EQ(store_->GetTape("a", tape.structure_hash()).value().storages(0).bytes(), 8);
  tape.set_structure_hash(3);
  ASSERT_TRUE(store_->PutTape("a", tape).ok());
  EXPECT_THAT(store_->ListTapes("a").value(), testing::ElementsAre(3u, 0xFFFFFFFFFFFFFFFFu));
}

TEST_P(StoreContract, TapesOfJobsAreApart) {
  ASSERT_TRUE(store_->CreateJob("a").ok());
  ASSERT_TRUE(store_->CreateJob("b").ok());
  v1::BlockTape tape;
  tape.set_structure_hash(1);
  ASSERT_TRUE(store_->PutTape("a", tape).ok());
  EXPECT_TRUE(absl::IsNotFound(store_->GetTape("b", 1).status()));
}

TEST_P(StoreContract, GenerationsOnlyGrow) {
  ASSERT_TRUE(store_->CreateJob("a").ok());
  ASSERT_TRUE(store_->CommitPlan(MakePlan("a", 5)).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(store_->CommitPlan(MakePlan("a", 5))));
  EXPECT_TRUE(absl::IsFailedPrecondition(store_->CommitPlan(MakePlan("a", 4))));
  ASSERT_TRUE(store_->CommitPlan(MakePlan("a", 9)).ok());
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
    threads.emplace_back([this, &committed] {
      for (int generation = 1; generation <= kGenerations; ++generation) {
        if (store_->CommitPlan(MakePlan("a", generation)).ok()) ++committed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto plans = store_->ListPlans("a", kGenerations).value();
  EXPECT_EQ(committed, static_cast<int>(plans.size()));
  for (size_t i = 1; i < plans.size(); ++i) EXPECT_LT(plans[i].generation(), plans[i - 1].generation());
}

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_CONTRACT_SUITE_H_
