// What a job takes up from the store after a restart of the server.
#include <algorithm>
#include <utility>

#include "server/job/job.h"
#include "server/messages/plan_message.h"

namespace tidetape::server {

absl::Status Job::Restore() {
  const auto record = store_->GetJob(name_);
  if (!record.ok()) return record.status();
  const auto incarnations = store_->ListIncarnations(name_);
  if (!incarnations.ok()) return incarnations.status();
  const auto constraints = store_->GetConstraints(name_);
  if (!constraints.ok()) return constraints.status();
  const auto plans = store_->ListPlans(name_, 1);
  if (!plans.ok()) return plans.status();
  const auto hashes = store_->ListTapes(name_);
  if (!hashes.ok()) return hashes.status();
  const auto ranks = store_->ListRanks(name_);
  if (!ranks.ok()) return ranks.status();
  const auto costs = store_->ListCosts(name_);
  if (!costs.ok()) return costs.status();
  JobMeasurements measured;
  for (const uint64_t hash : *hashes) {
    const auto tape = store_->GetTape(name_, hash);
    if (!tape.ok()) return tape.status();
    measured.PutTape(*tape, /*incarnation=*/"", /*reshaped=*/false);
  }
  for (const CostRecord& measurement : *costs) {
    google::protobuf::RepeatedPtrField<v1::TapeCosts> one;
    *one.Add() = measurement.costs;
    // Costs that do not fit their tape are of a shape that was replaced since.
    measured.AddCosts(measurement.rank, one).IgnoreError();
  }

  absl::MutexLock write_lock(&write_mutex_);
  absl::MutexLock lock(&mutex_);
  measured_ = std::move(measured);
  constraints_ = *constraints;
  revision_ = record->revision;
  end_ = record->end;
  for (const IncarnationRecord& incarnation : *incarnations) {
    if (!incarnation_.id.empty()) superseded_.insert(incarnation_.id);
    incarnation_ = incarnation;
  }
  for (const RankRecord& rank : *ranks) RestoreRank(rank);
  if (!plans->empty()) {
    const v1::Plan& newest = plans->front();
    highest_generation_ = std::max(highest_generation_, newest.generation());
    if (newest.incarnation() == incarnation_.id) {
      committed_ = std::make_shared<v1::Plan>(newest);
      planned_limit_ = newest.memory_limit_bytes();
      planned_revision_ = newest.revision();
      residual_bytes_ = planned_residual_ = newest.residual_bytes();
      revision_reason_ = "the job's tapes or constraints changed";
    }
  }
  return absl::OkStatus();
}

void Job::RestoreRank(const RankRecord& record) {
  Rank& rank = ranks_[record.rank];
  rank.hello = record.hello;
  rank.standing = record.standing;
  rank.last_report = record.report.value_or(v1::StepReport());
  rank.reports = record.reports;
  rank.last_heard = record.heard;
  // Not fresh: a plan may have been made of it already, and the next measurement says whether that holds.
  if (record.profile.has_value()) rank.profile = std::make_shared<planner::MemoryProfile>(ProfileFromMessage(*record.profile));
  last_heard_ = std::max(last_heard_, record.heard);
  highest_generation_ = std::max({highest_generation_, record.standing.held_generation, record.standing.active_generation});
}

}  // namespace tidetape::server
