// Step reports on their way out: a bounded queue that drops its oldest.
#ifndef TIDETAPE_AGENT_LINK_REPORT_QUEUE_H_
#define TIDETAPE_AGENT_LINK_REPORT_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "agent/link/planner_link.h"

namespace tidetape::link {

// Not thread-safe. Holds at most 2 * capacity reports: those that wait, and those that were sent and not acknowledged.
class ReportQueue {
 public:
  explicit ReportQueue(size_t capacity) : capacity_(capacity) {}

  // False where the oldest waiting report made room for this one.
  bool Push(std::shared_ptr<const StepReport> report) {
    const bool room = waiting_.size() < capacity_;
    if (!room) DropOldest();
    waiting_.push_back(std::move(report));
    return room;
  }

  // The next report, sent under this sequence number (rising within a stream), or null.
  std::shared_ptr<const StepReport> Next(int64_t sequence) {
    if (waiting_.empty()) return nullptr;
    std::shared_ptr<const StepReport> report = std::move(waiting_.front());
    waiting_.pop_front();
    // A server that never acknowledges: what was sent first has had the longest time to arrive.
    if (unacknowledged_.size() == capacity_) unacknowledged_.pop_front();
    unacknowledged_.push_back({sequence, report});
    ++sent_;
    return report;
  }

  // Everything up to this sequence number has arrived.
  void Acknowledge(int64_t sequence) {
    while (!unacknowledged_.empty() && unacknowledged_.front().sequence <= sequence) unacknowledged_.pop_front();
  }

  // The stream is gone: what was not acknowledged waits again, in front of the rest.
  void Requeue() {
    while (!unacknowledged_.empty()) {
      waiting_.push_front(std::move(unacknowledged_.back().report));
      unacknowledged_.pop_back();
      --sent_;
    }
    while (waiting_.size() > capacity_) DropOldest();
  }

  // Gives up what was sent and not acknowledged: the server refused it.
  void Discard() {
    dropped_ += static_cast<int64_t>(unacknowledged_.size());
    sent_ -= static_cast<int64_t>(unacknowledged_.size());
    unacknowledged_.clear();
  }

  void Clear() {
    waiting_.clear();
    unacknowledged_.clear();
  }

  bool empty() const { return waiting_.empty(); }
  int64_t sent() const { return sent_; }
  int64_t dropped() const { return dropped_; }

 private:
  struct Sent {
    int64_t sequence = 0;
    std::shared_ptr<const StepReport> report;
  };

  void DropOldest() {
    waiting_.pop_front();
    ++dropped_;
  }

  const size_t capacity_;
  std::deque<std::shared_ptr<const StepReport>> waiting_;
  std::deque<Sent> unacknowledged_;
  int64_t sent_ = 0;
  int64_t dropped_ = 0;
};

}  // namespace tidetape::link

#endif  // TIDETAPE_AGENT_LINK_REPORT_QUEUE_H_
