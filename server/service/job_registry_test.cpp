#include "server/service/job_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/store/memory_store.h"
#include "server/testing/example_job.h"
#include "server/testing/expect_stored.h"
#include "server/testing/fake_rank_channel.h"

namespace tidetape::server {
namespace {

class JobRegistryTest : public testing::Test {
 protected:
  JobRegistryTest() { registry_ = MakeRegistry(); }

  std::unique_ptr<JobRegistry> MakeRegistry() {
    JobRegistry::Options options;
    options.jobs = 2;
    options.end_after_silence = absl::Minutes(10);
    options.retention = absl::Hours(24);
    return std::make_unique<JobRegistry>(options, &store_, &clock_, &worker_);
  }

  std::shared_ptr<RankChannel> Connect(const std::string& name) {
    auto channel = std::make_shared<FakeRankChannel>();
    EXPECT_TRUE(registry_->FindOrCreate(name).value()->Connect(ExampleHello(), channel, ExpectStored()).ok());
    return channel;
  }

  MemoryStore store_;
  ManualClock clock_;
  Worker worker_{{}};
  std::unique_ptr<JobRegistry> registry_;
};

TEST_F(JobRegistryTest, FindsWhatWasCreated) {
  const auto job = registry_->FindOrCreate("a").value();
  EXPECT_EQ(registry_->FindOrCreate("a").value(), job);
  EXPECT_EQ(registry_->Find("a").value(), job);
  const absl::Status unknown = registry_->Find("b").status();
  EXPECT_TRUE(absl::IsNotFound(unknown));
  EXPECT_EQ(unknown.message(), "no job 'b'; known jobs: a");
}

TEST_F(JobRegistryTest, MakesRoomByForgettingTheJobThatWasSilentForLongest) {
  const auto quiet = Connect("quiet");
  clock_.Advance(absl::Seconds(1));
  const auto lively = Connect("lively");
  const absl::Status full = registry_->FindOrCreate("third").status();
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  registry_->Find("lively").value()->Disconnect(0, lively.get(), Job::Parting::kLost);
  registry_->Find("quiet").value()->Disconnect(0, quiet.get(), Job::Parting::kLost);
  EXPECT_TRUE(registry_->FindOrCreate("third").ok());
  EXPECT_TRUE(absl::IsNotFound(registry_->Find("quiet").status()));
  EXPECT_TRUE(registry_->Find("lively").ok());
  EXPECT_THAT(store_.ListJobs().value(), testing::ElementsAre("lively", "third"));
}

TEST_F(JobRegistryTest, RestoresTheStoresJobs) {
  Connect("a");
  registry_ = MakeRegistry();
  EXPECT_TRUE(absl::IsNotFound(registry_->Find("a").status()));
  ASSERT_TRUE(registry_->Restore().ok());
  EXPECT_EQ(registry_->Find("a").value()->Summary().incarnation(), "first");
}

TEST_F(JobRegistryTest, JobsEndAndAreForgottenInTime) {
  const auto quiet = Connect("quiet");
  const auto lively = Connect("lively");
  registry_->Find("quiet").value()->Disconnect(0, quiet.get(), Job::Parting::kLost);
  clock_.Advance(absl::Minutes(9));
  registry_->Sweep();
  EXPECT_EQ(registry_->Find("quiet").value()->Summary().state(), v1::JobSummary::STATE_LOST);
  clock_.Advance(absl::Minutes(1));
  registry_->Sweep();
  EXPECT_EQ(registry_->Find("quiet").value()->Summary().state(), v1::JobSummary::STATE_ENDED);
  clock_.Advance(absl::Hours(23));
  registry_ = MakeRegistry();  // a restart does not begin the time anew
  ASSERT_TRUE(registry_->Restore().ok());
  Connect("lively");
  clock_.Advance(absl::Minutes(59));
  registry_->Sweep();
  EXPECT_TRUE(registry_->Find("quiet").ok());
  clock_.Advance(absl::Minutes(1));
  registry_->Sweep();
  EXPECT_TRUE(absl::IsNotFound(registry_->Find("quiet").status()));
  EXPECT_THAT(store_.ListJobs().value(), testing::ElementsAre("lively"));
}

TEST_F(JobRegistryTest, AnOldJobThatReportsAgainIsKept) {
  const auto channel = Connect("a");
  const auto job = registry_->Find("a").value();
  job->Disconnect(0, channel.get(), Job::Parting::kLost);
  clock_.Advance(absl::Minutes(11));
  registry_->Sweep();
  clock_.Advance(absl::Hours(30));
  Connect("a");
  registry_->Sweep();
  EXPECT_EQ(registry_->Find("a").value(), job);
}

}  // namespace
}  // namespace tidetape::server
