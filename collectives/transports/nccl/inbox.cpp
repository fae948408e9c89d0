#include "collectives/transports/nccl/inbox.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace tidetape::collectives {
namespace {

constexpr absl::Duration kFirstPause = absl::Microseconds(5);
constexpr absl::Duration kLongestPause = absl::Microseconds(200);
// What a stream needs to see that a signal is there already: the shortest wait, and how long a failure is held back.
constexpr absl::Duration kLook = absl::Milliseconds(2);
constexpr absl::Duration kLookAfterFailure = absl::Milliseconds(500);
// Between two looks at what may have failed.
constexpr absl::Duration kFailurePause = absl::Milliseconds(1);

}  // namespace

Inbox::~Inbox() {
  for (Device::Event event : under_way_) device_.DestroyEvent(event);
  if (stream_ != nullptr) device_.DestroyStream(stream_);
}

absl::Status Inbox::Ask(uint64_t count, WaitForOne wait_for_one) {
  if (stream_ == nullptr) {
    absl::StatusOr<Device::Stream> stream = device_.MakeStream();
    if (!stream.ok()) return stream.status();
    stream_ = *stream;
  }
  while (come_ + under_way_.size() < count) {
    if (absl::Status status = wait_for_one(stream_); !status.ok()) return status;
    absl::StatusOr<Device::Event> event = device_.Record(stream_);
    if (!event.ok()) return event.status();
    under_way_.push_back(*event);
  }
  return absl::OkStatus();
}

absl::Status Inbox::Collect() {
  while (!under_way_.empty()) {
    absl::StatusOr<bool> passed = device_.Passed(under_way_.front());
    if (!passed.ok()) return passed.status();
    if (!*passed) break;
    device_.DestroyEvent(under_way_.front());
    under_way_.pop_front();
    ++come_;
  }
  return absl::OkStatus();
}

absl::Status Inbox::Take(uint64_t count, absl::Time deadline, WaitForOne wait_for_one, Failure failure) {
  if (count == 0) return absl::OkStatus();
  const absl::Time start = absl::Now();
  absl::Time next_failure = start, failed_at = absl::InfiniteFuture();
  absl::Status failed;
  for (absl::Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    const absl::Time now = absl::Now();
    if (failed.ok() && now >= next_failure) {
      failed = failure();
      next_failure = now + kFailurePause;
      if (!failed.ok()) failed_at = now;
    }
    uint64_t come = 0;
    {
      std::lock_guard lock(mutex_);
      if (absl::Status status = Collect(); !status.ok()) return status;
      if (absl::Status status = Ask(count, wait_for_one); !status.ok()) return failed.ok() ? status : failed;
      if (come_ >= count) {
        come_ -= count;
        return absl::OkStatus();
      }
      come = come_;
    }
    // What a rank sent before it was lost counts.
    if (now >= failed_at + kLookAfterFailure) return failed;
    if (failed.ok() && now >= std::max(deadline, start + kLook)) {
      return absl::DeadlineExceededError(absl::StrCat(come, " of ", count, " signals arrived before the deadline"));
    }
    absl::SleepFor(pause);
  }
}

}  // namespace tidetape::collectives
