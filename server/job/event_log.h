// The newest events of a job, and who wants to hear of new ones.
#ifndef TIDETAPE_SERVER_JOB_EVENT_LOG_H_
#define TIDETAPE_SERVER_JOB_EVENT_LOG_H_

#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::server {

// Hears of a job. Calls come from any thread and must not block.
class JobWatcher {
 public:
  virtual ~JobWatcher() = default;
  virtual void OnEvent(const v1::JobEvent& event) = 0;
  // The job's summary is worth a new look.
  virtual void OnProgress() = 0;
};

// Thread-safe.
class EventLog {
 public:
  // Events kept for people who come later.
  static constexpr size_t kKeptEvents = 100;

  void Add(const v1::JobEvent& event) {
    {
      absl::MutexLock lock(&mutex_);
      events_.push_back(event);
      if (events_.size() > kKeptEvents) events_.pop_front();
    }
    for (const auto& watcher : Watchers()) watcher->OnEvent(event);
  }

  void Progress() {
    for (const auto& watcher : Watchers()) watcher->OnProgress();
  }

  // Oldest first.
  std::vector<v1::JobEvent> Events() const {
    absl::MutexLock lock(&mutex_);
    return {events_.begin(), events_.end()};
  }

  // The watcher hears of events until it is destroyed.
  void Watch(const std::shared_ptr<JobWatcher>& watcher) {
    absl::MutexLock lock(&mutex_);
    watchers_.push_back(watcher);
  }

 private:
  // Called outside the lock, because a watcher may end its stream in the call.
  std::vector<std::shared_ptr<JobWatcher>> Watchers() {
    absl::MutexLock lock(&mutex_);
    std::vector<std::shared_ptr<JobWatcher>> alive;
    std::erase_if(watchers_, [](const auto& watcher) { return watcher.expired(); });
    for (const auto& watcher : watchers_) {
      if (auto locked = watcher.lock()) alive.push_back(std::move(locked));
    }
    return alive;
  }

  mutable absl::Mutex mutex_;
  std::deque<v1::JobEvent> events_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<JobWatcher>> watchers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_JOB_EVENT_LOG_H_
