#include "server/common/worker.h"

#include <utility>

namespace tidetape::server {

Worker::Worker(const Options& options) : options_(options) {
  for (int i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { Run(); });
}

Worker::~Worker() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    tasks_.clear();
  }
  for (std::thread& thread : threads_) thread.join();
}

bool Worker::Post(std::function<void()> task) {
  absl::MutexLock lock(&mutex_);
  if (stopping_ || tasks_.size() >= options_.queue) {
    ++refused_;
    return false;
  }
  tasks_.push_back(std::move(task));
  return true;
}

size_t Worker::waiting() const {
  absl::MutexLock lock(&mutex_);
  return tasks_.size();
}

void Worker::Run() {
  while (true) {
    std::function<void()> task;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(
          +[](Worker* self) { return self->stopping_ || !self->tasks_.empty(); }, this));
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace tidetape::server
