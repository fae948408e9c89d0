#include "agent/measure/step_profile.h"

#include <algorithm>
#include <utility>

#include "agent/measure/meter.h"

namespace tidetape::agent {

bool SameMarks(const std::vector<BackwardMark>& a, const std::vector<BackwardMark>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const BackwardMark& x, const BackwardMark& y) { return x.reads == y.reads && x.releases == y.releases; });
}

StepProfile& StepProfile::Get() {
  static auto* profile = new StepProfile();  // tapes may outlive static destruction
  return *profile;
}

void StepProfile::Switch(int64_t* sink) {
  EndInterval();
  sink_ = sink;
}

int64_t StepProfile::EndInterval() {
  const int64_t peak = meter::TakePeak();
  step_peak_ = std::max(step_peak_, peak);
  *sink_ = std::max(*sink_, peak - PlannedInStep());
  return peak - PlannedInStep();
}

StepProfile::Slot& StepProfile::At(int32_t position) {
  while (static_cast<size_t>(position) >= slots_.size()) slots_.emplace_back();
  return slots_[position];
}

void StepProfile::NewMark(Slot& slot) {
  slot.marks.emplace_back();
  Switch(&slot.marks.back().peak_bytes);
  slot.marks.back().start_bytes = meter::LiveBytes() - PlannedInStep();
}

void StepProfile::ForwardBegins(int32_t position) {
  if (!profiling()) return;
  const std::lock_guard lock(mutex_);
  Slot& slot = At(position);
  order_.push_back(position);
  Switch(&slot.profile.forward_peak_bytes);
  slot.profile.forward_peak_bytes = std::max(slot.profile.forward_peak_bytes, std::exchange(between_, 0));
  const int64_t live = meter::LiveBytes();
  slot.profile.forward_start_bytes = std::max(slot.profile.forward_start_bytes, live - PlannedInStep());
  live_.push_back(live);
}

void StepProfile::ForwardEnds() {
  if (!profiling()) return;
  const std::lock_guard lock(mutex_);
  Switch(&scratch_);
  live_.push_back(meter::LiveBytes());
}

void StepProfile::MovesEnd() {
  if (!profiling()) return;
  const std::lock_guard lock(mutex_);
  Switch(&between_);
}

void StepProfile::Reads(int32_t position, bool first, uint64_t site) {
  if (!profiling()) return;
  const std::lock_guard lock(mutex_);
  Slot& slot = At(position);
  if (first) {
    order_.push_back(~position);
    // The marks of a former execution may still be the sink: end its interval before they go.
    Switch(&outside_);
    head_ = std::max(head_, std::exchange(between_, 0));
    Merge(slot);
    slot.profile.complete = false;
    live_.push_back(meter::LiveBytes());
  }
  NewMark(slot);
  slot.marks.back().reads.push_back(site);
}

void StepProfile::ReplayBegins() {
  if (!profiling()) return;
  const std::lock_guard lock(mutex_);
  Switch(&scratch_);
}

void StepProfile::ReplayEnds(int32_t position) {
  if (!profiling()) return;
  const std::lock_guard lock(mutex_);
  Slot& slot = At(position);
  Switch(slot.marks.empty() ? &outside_ : &slot.marks.back().peak_bytes);
}

void StepProfile::Releases(int32_t position, uint64_t site) {
  if (!profiling()) return;
  const std::lock_guard lock(mutex_);
  Slot& slot = At(position);
  if (slot.marks.empty()) return;
  slot.marks.back().releases.push_back(site);
  Switch(&scratch_);
}

void StepProfile::ReleaseEnds(int32_t position) {
  if (!profiling()) return;
  const std::lock_guard lock(mutex_);
  Slot& slot = At(position);
  if (!slot.marks.empty()) NewMark(slot);
}

void StepProfile::BackwardEnds(int32_t position, bool others_alive) {
  if (!profiling()) return;
  const std::lock_guard lock(mutex_);
  At(position).profile.complete = true;
  live_.push_back(meter::LiveBytes());
  if (!others_alive) Switch(&outside_);
}

int64_t StepProfile::TakeReplayPeak() {
  const std::lock_guard lock(mutex_);
  const int64_t peak = meter::TakePeak();
  step_peak_ = std::max(step_peak_, peak);
  return peak;
}

int64_t StepProfile::TakeForwardPeak() {
  const std::lock_guard lock(mutex_);
  return EndInterval();
}

void StepProfile::Merge(Slot& slot) {
  std::vector<BackwardMark> marks(std::make_move_iterator(slot.marks.begin()), std::make_move_iterator(slot.marks.end()));
  slot.marks.clear();
  if (marks.empty()) return;
  if (SameMarks(marks, slot.profile.marks)) {
    for (size_t i = 0; i < marks.size(); ++i) {
      marks[i].peak_bytes = std::max(marks[i].peak_bytes, slot.profile.marks[i].peak_bytes);
      marks[i].start_bytes = std::max(marks[i].start_bytes, slot.profile.marks[i].start_bytes);
    }
  }
  slot.profile.marks = std::move(marks);
}

StepMemory StepProfile::FinishStep(bool profile_next) {
  const std::lock_guard lock(mutex_);
  Switch(&outside_);
  StepMemory memory;
  memory.step_peak_bytes = std::exchange(step_peak_, 0);
  memory.head_peak_bytes = std::exchange(head_, 0);
  memory.outside_peak_bytes = std::exchange(outside_, 0);
  memory.live_bytes = std::exchange(live_, {});
  memory.order = std::exchange(order_, {});
  for (Slot& slot : slots_) {
    Merge(slot);
    memory.instances.push_back(std::move(slot.profile));
  }
  slots_.clear();
  between_ = scratch_ = 0;
  planned_before_ = planned_.load(std::memory_order_relaxed);
  profiling_.store(profile_next, std::memory_order_relaxed);
  return memory;
}

}  // namespace tidetape::agent
