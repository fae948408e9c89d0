// Connections that wait for a thread, a bounded number: whoever accepts more waits, too, and the rest stay in the kernel.
#ifndef TIDETAPE_SERVER_HTTP_CONNECTION_QUEUE_H_
#define TIDETAPE_SERVER_HTTP_CONNECTION_QUEUE_H_

#include <httplib.h>

#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tidetape::server {

// Thread-safe.
class ConnectionQueue final : public httplib::TaskQueue {
 public:
  ConnectionQueue(int threads, size_t waiting) : most_(waiting) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
  }

  void enqueue(std::function<void()> task) override {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](ConnectionQueue* self) { return self->tasks_.size() < self->most_; }, this));
    tasks_.push_back(std::move(task));
  }

  // Runs what waits, since each task closes its connection.
  void shutdown() override {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void Run() {
    while (true) {
      std::function<void()> task;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(
            +[](ConnectionQueue* self) { return self->stopping_ || !self->tasks_.empty(); }, this));
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  const size_t most_;
  absl::Mutex mutex_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_HTTP_CONNECTION_QUEUE_H_
