// Group commit: one thread that writes for all.
//
// Whatever waits when a transaction ends goes into the next one together, so that thousands of writes a second share a few tens of
// writes to stable storage. Nobody is told OK before the transaction has been committed.
#ifndef TIDETAPE_SERVER_STORE_COMMIT_QUEUE_H_
#define TIDETAPE_SERVER_STORE_COMMIT_QUEUE_H_

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "server/store/sql_database.h"
#include "server/store/store.h"
#include "server/store/store_observer.h"

namespace tidetape::server {

// Thread-safe. The destructor writes what waits, then ends the thread.
class CommitQueue {
 public:
  // Changes the database inside a transaction. NOT_FOUND, FAILED_PRECONDITION and INVALID_ARGUMENT mean that it has changed
  // nothing and the transaction goes on; any other error ends the transaction.
  using Work = std::function<absl::Status(SqlDatabase&)>;

  struct Options {
    // Writes that wait; more are refused.
    size_t waiting = 1 << 16;
    // Most writes in one transaction.
    size_t batch = 4096;
    // Looked at first in every transaction: an error refuses all that is in it. Null: nothing.
    Work guard;
    // Hears of every transaction; outlives the queue. Null: nobody.
    StoreObserver* observer = nullptr;
  };

  // `database` outlives the queue, and is used by the queue's thread alone.
  CommitQueue(SqlDatabase* database, Options options);
  ~CommitQueue();
  CommitQueue(const CommitQueue&) = delete;
  CommitQueue& operator=(const CommitQueue&) = delete;

  // Told on the queue's thread once the work is durable or has failed; RESOURCE_EXHAUSTED, on this thread, where too many wait.
  void Post(Work work, Store::Done done);

  // The same, waited for.
  absl::Status Run(Work work);

 private:
  struct Write {
    Work work;
    Store::Done done;
    absl::Status status;
  };

  void Loop();
  // Writes all in one transaction and leaves each one's outcome in its status. False where the transaction failed as a whole for a
  // reason that may be one of its writes.
  bool WriteTogether(std::vector<Write>& batch, size_t begin, size_t end);
  // The same without telling the observer; the transaction's status.
  absl::Status Transact(std::vector<Write>& batch, size_t begin, size_t end);

  SqlDatabase* const database_;
  const Options options_;
  absl::Mutex mutex_;
  std::deque<Write> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_COMMIT_QUEUE_H_
