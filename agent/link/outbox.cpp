#include "agent/link/outbox.h"

#include <utility>

#include "planner/job/merge_ranks.h"

namespace tidetape::link {

bool Outbox::PushReport(StepReport report) {
  const auto shared = std::make_shared<const StepReport>(std::move(report));
  const std::lock_guard<std::mutex> lock(mutex_);
  if (shared->profile) newest_profile_ = shared;
  for (const planner::TapeCosts& costs : shared->costs) planner::UpdateCosts(costs, newest_costs_);
  return reports_.Push(shared);
}

void Outbox::SetActivation(const Activation& activation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  activation_ = activation;
}

void Outbox::SetMemoryLimit(int64_t memory_limit_bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  memory_limit_bytes_ = memory_limit_bytes;
}

Activation Outbox::activation() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return activation_;
}

int64_t Outbox::memory_limit_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return memory_limit_bytes_;
}

std::shared_ptr<const StepReport> Outbox::NextReport(int64_t sequence) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return reports_.Next(sequence);
}

void Outbox::Acknowledge(int64_t sequence) {
  const std::lock_guard<std::mutex> lock(mutex_);
  reports_.Acknowledge(sequence);
}

void Outbox::RequeueReports() {
  const std::lock_guard<std::mutex> lock(mutex_);
  reports_.Requeue();
}

void Outbox::DiscardSentReports() {
  const std::lock_guard<std::mutex> lock(mutex_);
  reports_.Discard();
}

bool Outbox::HasReports() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !reports_.empty();
}

int64_t Outbox::reports_sent() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return reports_.sent();
}

int64_t Outbox::reports_dropped() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return reports_.dropped();
}

std::shared_ptr<const StepReport> Outbox::Recap() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (newest_profile_ == nullptr) return nullptr;
  auto recap = std::make_shared<StepReport>(*newest_profile_);
  recap->costs.clear();
  for (const auto& [hash, costs] : newest_costs_) recap->costs.push_back(costs);
  return recap;
}

void Outbox::Clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  reports_.Clear();
}

}  // namespace tidetape::link
