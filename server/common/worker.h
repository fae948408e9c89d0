// Threads with a bounded queue, so that no gRPC callback thread plans or waits.
#ifndef TIDETAPE_SERVER_COMMON_WORKER_H_
#define TIDETAPE_SERVER_COMMON_WORKER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tidetape::server {

// Thread-safe. The destructor waits for the task in hand and drops the queued ones.
class Worker {
 public:
  struct Options {
    int threads = 1;
    // Tasks that wait; more are refused.
    size_t queue = 1024;
  };

  explicit Worker(const Options& options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // False where the queue is full or the worker stops: the task will not run.
  bool Post(std::function<void()> task);

  // Tasks that wait for a thread.
  size_t waiting() const;

  // Tasks that were refused so far.
  int64_t refused() const { return refused_; }

 private:
  void Run();

  const Options options_;
  mutable absl::Mutex mutex_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<int64_t> refused_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_COMMON_WORKER_H_
