#include "collectives/testing/link_model.h"

#include <algorithm>

namespace tidetape::collectives {

void LinkModel::Depart(absl::Time now) {
  for (; !waiting_.empty() && waiting_.front().departure <= now; waiting_.pop_front()) waiting_bytes_ -= waiting_.front().bytes;
  if (waiting_.empty() && now >= free_) overrun_ = false;
}

uint64_t LinkModel::Room(absl::Time now) {
  Depart(now);
  // A queue that has dropped takes nothing until it is empty and the stall over.
  return overrun_ ? 0 : options_.queue_bytes - std::min(options_.queue_bytes, waiting_bytes_);
}

absl::Time LinkModel::Enter(uint64_t bytes, absl::Time now) {
  free_ = std::max(free_, now) + absl::Seconds(static_cast<double>(bytes) / options_.bytes_per_second);
  waiting_.push_back({free_, bytes});
  waiting_bytes_ += bytes;
  return free_ + options_.delay;
}

void LinkModel::Overrun(absl::Time now) {
  if (overrun_ || options_.stall <= absl::ZeroDuration()) return;
  overrun_ = true;
  ++overruns_;
  free_ = std::max(free_, now) + options_.stall;
}

}  // namespace tidetape::collectives
