#include "collectives/transports/nccl/outbox.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace tidetape::collectives {
namespace {

constexpr absl::Duration kFirstPause = absl::Microseconds(5);
constexpr absl::Duration kLongestPause = absl::Microseconds(200);

}  // namespace

absl::Status AwaitEvent(Device& device, Device::Event event, absl::Time deadline, absl::FunctionRef<absl::Status()> failure) {
  absl::Status status;
  for (absl::Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    absl::StatusOr<bool> passed = device.Passed(event);
    status = passed.status();
    if (!passed.ok() || *passed) break;
    status = failure();
    if (!status.ok()) break;
    if (absl::Now() >= deadline) {
      status = absl::DeadlineExceededError("what was sent before has not left before the deadline");
      break;
    }
    absl::SleepFor(pause);
  }
  device.DestroyEvent(event);
  return status;
}

absl::StatusOr<std::unique_ptr<Outbox>> Outbox::Make(Device& device, int size, int puts_in_flight) {
  std::unique_ptr<Outbox> outbox(new Outbox(device, size, puts_in_flight / 2));
  absl::StatusOr<Device::Stream> stream = device.MakeStream();
  if (!stream.ok()) return stream.status();
  outbox->stream_ = *stream;
  return outbox;
}

Outbox::~Outbox() {
  for (Peer& peer : peers_) {
    for (Device::Event event : peer.batches) device_.DestroyEvent(event);
  }
  if (stream_ != nullptr) device_.DestroyStream(stream_);
}

absl::Status Outbox::Admit(int peer, absl::Time deadline, Failure failure) {
  Peer& to = peers_[static_cast<size_t>(peer)];
  if (to.puts == batch_) {
    absl::StatusOr<Device::Event> event = device_.Record(stream_);
    if (!event.ok()) return event.status();
    to.batches.push_back(*event);
    to.puts = 0;
  }
  // One whole batch may be under way, and the one that is being filled.
  while (to.batches.size() > 1) {
    const Device::Event oldest = to.batches.front();
    to.batches.pop_front();
    if (absl::Status status = AwaitEvent(device_, oldest, deadline, failure); !status.ok()) return status;
  }
  ++to.puts;
  return absl::OkStatus();
}

}  // namespace tidetape::collectives
