#include "agent/session/option_execution.h"

#include <algorithm>
#include <utility>

#include "agent/measure/meter.h"
#include "agent/measure/step_profile.h"

namespace tidetape::agent {
namespace {

// In the step profile a whole backward is one mark, that of a value which is read first and released last.
constexpr uint64_t kWholeBackward = 1;

double Seconds(std::chrono::steady_clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

OptionExecution::OptionExecution(std::shared_ptr<OptionObserver> observer, std::string block, int32_t position, int32_t option,
                                 bool first)
    : observer_(std::move(observer)), block_(std::move(block)), position_(position), option_(option), first_(first) {
  StepProfile::Get().ForwardBegins(position_);
  live_before_ = meter::LiveBytes();
  begun_ = Clock::now();
}

OptionExecution::~OptionExecution() {
  StepProfile& profile = StepProfile::Get();
  if (stage_ == Stage::kForward) {
    profile.ForwardEnds();
    profile.MovesEnd();
  }
  if (stage_ == Stage::kWaiting) profile.AddPlanned(-saved_bytes_);
  if (stage_ == Stage::kBackward) EndBackward();
  if (stage_ != Stage::kOver) observer_->OnOptionAbandoned(stage_ == Stage::kWaiting);
}

void OptionExecution::EndForward(int64_t output_bytes) {
  forward_seconds_ = Seconds(Clock::now() - begun_);
  saved_bytes_ = std::max<int64_t>(0, meter::LiveBytes() - live_before_ - output_bytes);
  stage_ = Stage::kWaiting;
  StepProfile& profile = StepProfile::Get();
  profile.AddPlanned(saved_bytes_);  // before its forward's interval ends, which is without them
  profile.ForwardEnds();
  profile.MovesEnd();
  observer_->OnOptionForwardEnd(*this);
}

void OptionExecution::BeginBackward() {
  if (stage_ != Stage::kWaiting) return;
  stage_ = Stage::kBackward;
  observer_->OnOptionBackwardBegin(shared_from_this());
  StepProfile::Get().Reads(position_, /*first=*/true, kWholeBackward);
  begun_ = Clock::now();
}

void OptionExecution::EndBackward() {
  if (stage_ != Stage::kBackward) return;
  stage_ = Stage::kOver;
  backward_seconds_ = Seconds(Clock::now() - begun_);
  StepProfile& profile = StepProfile::Get();
  profile.Releases(position_, kWholeBackward);
  profile.AddPlanned(-saved_bytes_);
  profile.ReleaseEnds(position_);
  profile.BackwardEnds(position_, observer_->OnOptionBackwardEnd(*this));
}

}  // namespace tidetape::agent
