// Threads with a bounded queue, so that no gRPC callback thread plans or waits.
#ifndef TIDETAPE_SERVER_WORKER_H_
#define TIDETAPE_SERVER_WORKER_H_

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

 private:
  void Run();

  const Options options_;
  absl::Mutex mutex_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_WORKER_H_
