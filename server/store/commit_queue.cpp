#include "server/store/commit_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"

namespace tidetape::server {
namespace {

// The database took part of the write, or could not say.
bool EndsTransaction(const absl::Status& status) {
  return !status.ok() && !absl::IsNotFound(status) && !absl::IsFailedPrecondition(status) && !absl::IsInvalidArgument(status);
}

}  // namespace

CommitQueue::CommitQueue(SqlDatabase* database, Options options) : database_(database), options_(std::move(options)) {
  thread_ = std::thread([this] { Loop(); });
}

CommitQueue::~CommitQueue() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void CommitQueue::Post(Work work, Store::Done done) {
  {
    absl::MutexLock lock(&mutex_);
    if (waiting_.size() < options_.waiting) {
      waiting_.push_back({std::move(work), std::move(done), absl::OkStatus()});
      return;
    }
  }
  done(absl::ResourceExhaustedError(absl::StrCat("the store is behind by ", options_.waiting, " writes; try again later")));
}

absl::Status CommitQueue::Run(Work work) {
  absl::Status outcome;
  absl::Notification written;
  Post(std::move(work), [&](const absl::Status& status) {
    outcome = status;
    written.Notify();
  });
  written.WaitForNotification();
  return outcome;
}

void CommitQueue::Loop() {
  while (true) {
    std::vector<Write> batch;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(
          +[](CommitQueue* self) { return self->stopping_ || !self->waiting_.empty(); }, this));
      if (waiting_.empty()) return;
      const size_t size = std::min(waiting_.size(), options_.batch);
      batch.insert(batch.end(), std::move_iterator(waiting_.begin()),
                   std::move_iterator(waiting_.begin() + static_cast<int>(size)));
      waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<int>(size));
    }
    if (!WriteTogether(batch, 0, batch.size()) && batch.size() > 1) {
      // One bad write must not fail its neighbours.
      for (size_t i = 0; i < batch.size(); ++i) WriteTogether(batch, i, i + 1);
    }
    for (const Write& write : batch) write.done(write.status);
  }
}

bool CommitQueue::WriteTogether(std::vector<Write>& batch, size_t begin, size_t end) {
  const absl::Time start = absl::Now();
  const absl::Status transaction = Transact(batch, begin, end);
  if (options_.observer != nullptr) options_.observer->OnTransaction(end - begin, absl::Now() - start, transaction.ok());
  return !absl::IsInternal(transaction);
}

absl::Status CommitQueue::Transact(std::vector<Write>& batch, size_t begin, size_t end) {
  absl::Status transaction = database_->Begin();
  if (transaction.ok() && options_.guard) transaction = options_.guard(*database_);
  for (size_t i = begin; i < end && transaction.ok(); ++i) {
    batch[i].status = batch[i].work(*database_);
    if (EndsTransaction(batch[i].status)) transaction = batch[i].status;
  }
  if (transaction.ok()) transaction = database_->Commit();
  if (transaction.ok()) return transaction;
  database_->Rollback();
  for (size_t i = begin; i < end; ++i) batch[i].status = transaction;
  return transaction;
}

}  // namespace tidetape::server
