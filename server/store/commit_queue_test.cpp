#include "server/store/commit_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"

namespace tidetape::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Remembers the statements of committed transactions. Used by the queue's thread; read when nothing is under way.
class FakeDatabase final : public SqlDatabase {
 public:
  absl::StatusOr<SqlResult> Execute(const std::string& sql, const std::vector<SqlValue>&) override {
    if (sql == bad_statement) return absl::InternalError("bad statement");
    pending_.push_back(sql);
    return SqlResult();
  }
  absl::Status Begin() override {
    if (hold != nullptr) hold->WaitForNotification();
    return begin_status;
  }
  absl::Status Commit() override {
    if (!commit_status.ok()) return commit_status;
    committed.insert(committed.end(), pending_.begin(), pending_.end());
    pending_.clear();
    ++commits;
    return absl::OkStatus();
  }
  void Rollback() override { pending_.clear(); }
  absl::Status LockSchema() override { return absl::OkStatus(); }
  std::string BytesType() const override { return "BYTES"; }

  absl::Notification* hold = nullptr;  // no transaction begins before it
  std::string bad_statement;
  absl::Status begin_status;
  absl::Status commit_status;
  std::vector<std::string> committed;
  int commits = 0;

 private:
  std::vector<std::string> pending_;
};

CommitQueue::Work Statement(const std::string& sql) {
  return [sql](SqlDatabase& database) { return database.Execute(sql, {}).status(); };
}

// Posts all while the database stands still but for the first, and returns their outcomes.
std::vector<absl::Status> PostTogether(FakeDatabase& database, CommitQueue& queue, absl::Notification& hold,
                                       const std::vector<CommitQueue::Work>& works) {
  std::vector<absl::Status> outcomes(works.size());
  absl::BlockingCounter left(static_cast<int>(works.size()) + 1);
  queue.Post(Statement("first"), [&](const absl::Status&) { left.DecrementCount(); });
  for (size_t i = 0; i < works.size(); ++i) {
    queue.Post(works[i], [&, i](const absl::Status& status) {
      outcomes[i] = status;
      left.DecrementCount();
    });
  }
  hold.Notify();
  left.Wait();
  return outcomes;
}

TEST(CommitQueue, WhatWaitsSharesACommit) {
  FakeDatabase database;
  absl::Notification hold;
  database.hold = &hold;
  CommitQueue queue(&database, {});
  const std::vector<CommitQueue::Work> works(500, Statement("x"));
  for (const absl::Status& status : PostTogether(database, queue, hold, works)) EXPECT_TRUE(status.ok());
  EXPECT_EQ(database.committed.size(), 501);
  EXPECT_LE(database.commits, 2);
}

TEST(CommitQueue, ARefusedWriteLeavesItsNeighboursAlone) {
  FakeDatabase database;
  absl::Notification hold;
  database.hold = &hold;
  CommitQueue queue(&database, {});
  const auto outcomes =
      PostTogether(database, queue, hold,
                   {Statement("a"), [](SqlDatabase&) { return absl::FailedPreconditionError("refused"); }, Statement("b")});
  EXPECT_TRUE(outcomes[0].ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(outcomes[1]));
  EXPECT_TRUE(outcomes[2].ok());
  EXPECT_THAT(database.committed, ElementsAre("first", "a", "b"));
}

TEST(CommitQueue, AWriteThatBreaksTheTransactionBreaksOnlyItself) {
  FakeDatabase database;
  absl::Notification hold;
  database.hold = &hold;
  database.bad_statement = "bad";
  CommitQueue queue(&database, {});
  const auto outcomes = PostTogether(database, queue, hold, {Statement("a"), Statement("bad"), Statement("b")});
  EXPECT_TRUE(outcomes[0].ok());
  EXPECT_TRUE(absl::IsInternal(outcomes[1]));
  EXPECT_TRUE(outcomes[2].ok());
  EXPECT_THAT(database.committed, ElementsAre("first", "a", "b"));
}

TEST(CommitQueue, ADatabaseThatIsAwayFailsAllAndIsTriedAgain) {
  FakeDatabase database;
  database.commit_status = absl::UnavailableError("away");
  CommitQueue queue(&database, {});
  EXPECT_TRUE(absl::IsUnavailable(queue.Run(Statement("a"))));
  database.commit_status = absl::OkStatus();
  database.begin_status = absl::UnavailableError("still away");
  EXPECT_TRUE(absl::IsUnavailable(queue.Run(Statement("b"))));
  EXPECT_THAT(database.committed, IsEmpty());
  database.begin_status = absl::OkStatus();
  EXPECT_TRUE(queue.Run(Statement("c")).ok());
  EXPECT_THAT(database.committed, ElementsAre("c"));
}

TEST(CommitQueue, TheGuardRefusesWholeTransactions) {
  FakeDatabase database;
  std::atomic<bool> leads = false;
  CommitQueue::Options options;
  options.guard = [&](SqlDatabase&) { return leads ? absl::OkStatus() : absl::UnavailableError("another server leads"); };
  CommitQueue queue(&database, options);
  EXPECT_TRUE(absl::IsUnavailable(queue.Run(Statement("a"))));
  EXPECT_THAT(database.committed, IsEmpty());
  leads = true;
  EXPECT_TRUE(queue.Run(Statement("b")).ok());
}

TEST(CommitQueue, MoreThanCanWaitIsRefused) {
  FakeDatabase database;
  absl::Notification hold;
  database.hold = &hold;
  std::atomic<int> refused = 0, written = 0;
  {
    CommitQueue queue(&database, {.waiting = 10});
    for (int i = 0; i < 100; ++i) {
      queue.Post(Statement("x"), [&](const absl::Status& status) { ++(status.ok() ? written : refused); });
    }
    EXPECT_GE(refused, 100 - 2 * 10);
    hold.Notify();
  }
  // The destructor has written what waited.
  EXPECT_EQ(refused + written, 100);
  EXPECT_EQ(static_cast<int>(database.committed.size()), written);
}

}  // namespace
}  // namespace tidetape::server
