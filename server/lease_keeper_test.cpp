#include "server/lease_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "server/store/postgres_store.h"
#include "server/store/testing/postgres_server.h"

namespace tidetape::server {
namespace {

class LeaseKeeperTest : public testing::Test {
 protected:
  // Of a server that wants to lead, and whose takings up of the lead end so, the last one for ever.
  LeaseKeeper::Options Leading(const std::vector<absl::Status>& outcomes) {
    LeaseKeeper::Options options;
    options.address = "here:1";
    options.interval = absl::Milliseconds(5);
    options.stand_by = [](const std::string&) {};
    options.lead = [this, outcomes](int64_t term) {
      absl::MutexLock lock(&mutex_);
      terms_.push_back(term);
      return outcomes[std::min(terms_.size(), outcomes.size()) - 1];
    };
    options.lost = [this](const absl::Status& status) {
      absl::MutexLock lock(&mutex_);
      losses_.push_back(status);
    };
    return options;
  }

  void AwaitTries(size_t tries) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&] { return terms_.size() >= tries; };
    ASSERT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(30)));
  }
  void AwaitLoss() {
    absl::MutexLock lock(&mutex_);
    const auto lost = [&] { return !losses_.empty(); };
    ASSERT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&lost), absl::Seconds(30)));
  }

  PostgresServer postgres_;
  std::unique_ptr<PostgresStore> store_ = PostgresStore::Make(postgres_.Connection("lease"), absl::Seconds(2)).value();
  absl::Mutex mutex_;
  std::vector<int64_t> terms_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Status> losses_ ABSL_GUARDED_BY(mutex_);
};

// A database that goes away between taking the lease and reading the jobs must not end the server.
TEST_F(LeaseKeeperTest, TriesAgainWhileTheDatabaseIsAway) {
  const absl::Status away = absl::UnavailableError("the database is away");
  {
    const LeaseKeeper keeper(&store_->lease(), Leading({away, away, absl::OkStatus()}));
    AwaitTries(3);
    absl::SleepFor(absl::Milliseconds(100));
  }
  absl::MutexLock lock(&mutex_);
  EXPECT_THAT(terms_, testing::ElementsAre(1, 1, 1));
  EXPECT_THAT(losses_, testing::IsEmpty());
}

TEST_F(LeaseKeeperTest, StopsAlsoWhileItTriesAgain) {
  {
    const LeaseKeeper keeper(&store_->lease(), Leading({absl::UnavailableError("the database is away")}));
    AwaitTries(2);
  }
  // The lease was given back.
  EXPECT_EQ(store_->lease().TryTake("there:2").value(), 2);
}

TEST_F(LeaseKeeperTest, EndsWhereTryingAgainWouldNotHelp) {
  const LeaseKeeper keeper(&store_->lease(), Leading({absl::DataLossError("a job cannot be read")}));
  AwaitLoss();
  absl::MutexLock lock(&mutex_);
  EXPECT_THAT(terms_, testing::ElementsAre(1));
  EXPECT_THAT(losses_, testing::ElementsAre(absl::DataLossError("a job cannot be read")));
}

TEST_F(LeaseKeeperTest, EndsWhenAnotherServerTookTheLeaseMeanwhile) {
  const auto other = PostgresStore::Make(postgres_.Connection("lease"), absl::Seconds(60)).value();
  const LeaseKeeper keeper(&store_->lease(), Leading({absl::UnavailableError("the database is away")}));
  AwaitTries(1);
  ASSERT_EQ(other->lease().TryTake("here:1").value(), 2);
  AwaitLoss();
  absl::MutexLock lock(&mutex_);
  EXPECT_TRUE(absl::IsFailedPrecondition(losses_[0])) << losses_[0];
}

}  // namespace
}  // namespace tidetape::server
