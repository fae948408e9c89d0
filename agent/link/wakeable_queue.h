// A completion queue that any thread may wake.
//
// gRPC ends the process when an alarm is set on a queue that was shut down. Here a wake-up and the shutdown exclude each other, so
// that one which comes late, as from a thread that was held up between two of its lines, does nothing.
#ifndef TIDETAPE_AGENT_LINK_WAKEABLE_QUEUE_H_
#define TIDETAPE_AGENT_LINK_WAKEABLE_QUEUE_H_

#include <grpc/support/time.h>
#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <mutex>

namespace tidetape::link {

class WakeableQueue {
 public:
  // `wake_tag` is the tag of the event that a wake-up makes.
  explicit WakeableQueue(void* wake_tag) : wake_tag_(wake_tag) {}

  // From any thread. One wake-up serves all calls until it is taken.
  void Wake() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (pending_ || shut_down_) return;
    pending_ = true;
    alarm_.Set(&queue_, gpr_time_0(GPR_CLOCK_MONOTONIC), wake_tag_);
  }

  // The queue's one reader calls this once it has the wake-up, before it looks for news: what comes after that wakes it again.
  void WakeTaken() {
    const std::lock_guard<std::mutex> lock(mutex_);
    pending_ = false;
  }

  // Ends the queue: events that are on their way are dropped, and later wake-ups do nothing. By the queue's one reader, at most
  // once.
  void ShutDown() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      shut_down_ = true;
      queue_.Shutdown();
    }
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  grpc::CompletionQueue& queue() { return queue_; }

 private:
  void* const wake_tag_;
  grpc::CompletionQueue queue_;
  std::mutex mutex_;
  bool pending_ = false;
  bool shut_down_ = false;
  grpc::Alarm alarm_;
};

}  // namespace tidetape::link

#endif  // TIDETAPE_AGENT_LINK_WAKEABLE_QUEUE_H_
