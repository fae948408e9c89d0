// The part of the contract of store.h that is about runs which outlive their jobs, as tests; included by contract_suite.h.
#ifndef TIDETAPE_SERVER_STORE_KNOWN_RUN_SUITE_H_
#define TIDETAPE_SERVER_STORE_KNOWN_RUN_SUITE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/store/contract_fixture.h"
#include "server/store/faulty_store.h"

namespace tidetape::server {

class KnownRuns {
 public:
  static constexpr int64_t kKeepBytes = 1 << 20;
  // Neither fits a signed integer, which is all that SQL has.
  static constexpr KnownRunKey kKey = {0xFFFFFFFFFFFFFFFFu, 0x8000000000000001u};

  // A run of about so many bytes.
  static v1::KnownRun Make(const std::string& job, size_t bytes = 0) {
    v1::KnownRun run;
    run.set_job(job);
    run.set_plain_step_seconds(0.5);
    run.mutable_problem()->add_tapes()->set_name(std::string(bytes, 'x'));
    return run;
  }

  static absl::Time At(int64_t second) { return absl::FromUnixSeconds(1'700'000'000 + second); }

  static std::vector<std::string> Jobs(Store& store, uint64_t structure, int limit = 100) {
    std::vector<std::string> jobs;
    const auto runs = store.ListKnownRuns(structure, limit);
    for (const v1::KnownRun& run : *runs) jobs.push_back(run.job());
    return jobs;
  }
};

TEST_P(StoreContract, ARunComesBackAsItWasPutWithoutAnyJob) {
  EXPECT_TRUE(absl::IsNotFound(store_->GetKnownRun(KnownRuns::kKey).status()));
  ASSERT_TRUE(store_->PutKnownRun(KnownRuns::kKey, KnownRuns::Make("first"), KnownRuns::At(0), KnownRuns::kKeepBytes).ok());
  EXPECT_EQ(store_->GetKnownRun(KnownRuns::kKey).value().SerializeAsString(), KnownRuns::Make("first").SerializeAsString());
  ASSERT_TRUE(store_->PutKnownRun(KnownRuns::kKey, KnownRuns::Make("second"), KnownRuns::At(1), KnownRuns::kKeepBytes).ok());
  EXPECT_EQ(store_->GetKnownRun(KnownRuns::kKey).value().job(), "second");
  EXPECT_TRUE(absl::IsNotFound(store_->GetKnownRun({KnownRuns::kKey.structure, 2}).status()));
  EXPECT_TRUE(absl::IsNotFound(store_->GetKnownRun({2, KnownRuns::kKey.shapes}).status()));
  EXPECT_THAT(store_->ListJobs().value(), testing::IsEmpty());
}

TEST_P(StoreContract, ARunOutlivesItsJob) {
  ASSERT_TRUE(store_->CreateJob("a").ok());
  ASSERT_TRUE(store_->PutKnownRun(KnownRuns::kKey, KnownRuns::Make("a"), KnownRuns::At(0), KnownRuns::kKeepBytes).ok());
  ASSERT_TRUE(store_->DeleteJob("a").ok());
  EXPECT_EQ(store_->GetKnownRun(KnownRuns::kKey).value().job(), "a");
}

TEST_P(StoreContract, RunsOfOneStructureAreListedUsedLastFirst) {
  for (int i = 0; i < 4; ++i) {
    const KnownRunKey key = {7, static_cast<uint64_t>(10 - i)};
    ASSERT_TRUE(store_->PutKnownRun(key, KnownRuns::Make(std::to_string(i)), KnownRuns::At(i), KnownRuns::kKeepBytes).ok());
  }
  ASSERT_TRUE(store_->PutKnownRun({8, 1}, KnownRuns::Make("other"), KnownRuns::At(9), KnownRuns::kKeepBytes).ok());
  EXPECT_THAT(KnownRuns::Jobs(*store_, 7), testing::ElementsAre("3", "2", "1", "0"));
  EXPECT_THAT(KnownRuns::Jobs(*store_, 7, 2), testing::ElementsAre("3", "2"));
  EXPECT_THAT(KnownRuns::Jobs(*store_, 9), testing::IsEmpty());
  // Used again.
  ASSERT_TRUE(store_->PutKnownRun({7, 10}, KnownRuns::Make("0"), KnownRuns::At(20), KnownRuns::kKeepBytes).ok());
  EXPECT_THAT(KnownRuns::Jobs(*store_, 7), testing::ElementsAre("0", "3", "2", "1"));
}

TEST_P(StoreContract, TheRunsThatWereUsedLongestAgoMakeRoom) {
  constexpr int64_t kKeep = 3500;
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(store_->PutKnownRun({7, i}, KnownRuns::Make(std::to_string(i), 1000), KnownRuns::At(10 - i), kKeep).ok());
  }
  EXPECT_THAT(KnownRuns::Jobs(*store_, 7), testing::ElementsAre("0", "1", "2"));
  ASSERT_TRUE(store_->PutKnownRun({8, 0}, KnownRuns::Make("new", 1000), KnownRuns::At(20), kKeep).ok());
  EXPECT_THAT(KnownRuns::Jobs(*store_, 7), testing::ElementsAre("0", "1"));
  EXPECT_THAT(KnownRuns::Jobs(*store_, 8), testing::ElementsAre("new"));
  // One that is too large for all of the room changes nothing.
  EXPECT_TRUE(absl::IsInvalidArgument(store_->PutKnownRun({9, 0}, KnownRuns::Make("huge", 4000), KnownRuns::At(30), kKeep)));
  EXPECT_THAT(KnownRuns::Jobs(*store_, 7), testing::SizeIs(2));
  EXPECT_THAT(KnownRuns::Jobs(*store_, 9), testing::IsEmpty());
}

TEST_P(StoreContract, RunsThatNobodyUsesAreForgotten) {
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(store_->PutKnownRun({7, i}, KnownRuns::Make(std::to_string(i)), KnownRuns::At(i), KnownRuns::kKeepBytes).ok());
  }
  ASSERT_TRUE(store_->DropKnownRuns(KnownRuns::At(1)).ok());
  EXPECT_THAT(KnownRuns::Jobs(*store_, 7), testing::ElementsAre("2", "1"));
  ASSERT_TRUE(store_->DropKnownRuns(KnownRuns::At(100)).ok());
  EXPECT_THAT(KnownRuns::Jobs(*store_, 7), testing::IsEmpty());
}

TEST_P(StoreContract, APutRunWhoseAnswerWasLostCanBeRepeated) {
  FaultyStore faulty(store_.get());
  for (const FaultyStore::Fault fault : {FaultyStore::Fault::kBeforeRequest, FaultyStore::Fault::kAfterResponse}) {
    faulty.Fail(fault);
    const auto put = [&] {
      return faulty.PutKnownRun(KnownRuns::kKey, KnownRuns::Make("a"), KnownRuns::At(0), KnownRuns::kKeepBytes);
    };
    EXPECT_TRUE(absl::IsUnavailable(put()));
    EXPECT_TRUE(put().ok());
    EXPECT_EQ(store_->GetKnownRun(KnownRuns::kKey).value().job(), "a");
    faulty.Fail(fault);
    EXPECT_TRUE(absl::IsUnavailable(faulty.DropKnownRuns(KnownRuns::At(1))));
    EXPECT_TRUE(faulty.DropKnownRuns(KnownRuns::At(1)).ok());
    EXPECT_TRUE(absl::IsNotFound(store_->GetKnownRun(KnownRuns::kKey).status()));
  }
}

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_KNOWN_RUN_SUITE_H_
