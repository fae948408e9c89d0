// What people are told of a job.
#include <algorithm>

#include "server/job/constraints.h"
#include "server/job/job.h"

namespace tidetape::server {

int32_t Job::ConnectedLocked() const {
  return static_cast<int32_t>(
      std::count_if(ranks_.begin(), ranks_.end(), [](const auto& entry) { return entry.second.channel != nullptr; }));
}

v1::JobSummary Job::SummaryLocked() const {
  v1::JobSummary summary;
  summary.set_job(name_);
  summary.set_incarnation(incarnation_.id);
  summary.set_world_size(incarnation_.world_size);
  const int32_t connected = ConnectedLocked();
  summary.set_connected_ranks(connected);
  summary.set_memory_limit_bytes(LimitLocked());
  summary.set_waiting_for(WaitingForLocked());

  bool all_active = committed_ != nullptr;
  int64_t measured_peak = 0;
  for (const auto& [number, rank] : ranks_) {
    all_active = all_active && rank.standing.active_generation == committed_->generation();
    if (rank.reports == 0) continue;
    const v1::StepReport& report = rank.last_report;
    summary.set_step_peak_bytes(std::max(summary.step_peak_bytes(), report.step_peak_bytes()));
    summary.set_step_seconds(std::max(summary.step_seconds(), report.step_seconds()));
    summary.set_replay_seconds(std::max(summary.replay_seconds(), report.replay_seconds()));
    summary.set_step(std::max(summary.step(), report.step()));
    if (committed_ != nullptr && report.generation() == committed_->generation()) {
      measured_peak = std::max(measured_peak, report.step_peak_bytes());
    }
  }
  if (committed_ != nullptr) {
    summary.set_generation(committed_->generation());
    summary.set_predicted_peak_bytes(committed_->step_peak_bytes());
    summary.set_predicted_replay_seconds(committed_->replay_seconds());
    if (measured_peak > 0 && committed_->step_peak_bytes() > 0) {
      const auto predicted = static_cast<double>(committed_->step_peak_bytes());
      summary.set_peak_residual_ratio((static_cast<double>(measured_peak) - predicted) / predicted);
    }
  }

  if (end_.has_value()) {
    summary.set_state(v1::JobSummary::STATE_ENDED);
    summary.set_end_reason(end_->reason);
    summary.clear_waiting_for();
  } else if (connected == 0) {
    summary.set_state(v1::JobSummary::STATE_LOST);
  } else if (committed_ == nullptr || connected < incarnation_.world_size) {
    summary.set_state(v1::JobSummary::STATE_GATHERING);
  } else {
    summary.set_state(all_active ? v1::JobSummary::STATE_RUNNING : v1::JobSummary::STATE_SWITCHING);
  }
  return summary;
}

v1::JobSummary Job::Summary() const {
  absl::MutexLock lock(&mutex_);
  return SummaryLocked();
}

JobSnapshot Job::Snapshot() const {
  JobSnapshot snapshot;
  absl::MutexLock lock(&mutex_);
  snapshot.summary = SummaryLocked();
  snapshot.planning_failed = !planning_status_.ok();
  snapshot.last_heard = last_heard_;
  if (committed_ != nullptr) {
    snapshot.plan = {
        committed_->gap_ratio(), committed_->feasible(), committed_->saved_bytes(), committed_->least_peak_bytes(), {}};
    if (committed_->has_pacing()) snapshot.plan->pacing = committed_->pacing();
  }
  for (const auto& [number, rank] : ranks_) {
    const v1::StepReport& report = rank.last_report;
    RankSnapshot& out = snapshot.ranks.emplace_back();
    out.rank = number;
    out.connected = rank.channel != nullptr;
    out.cannot_follow = !rank.standing.error.empty();
    out.reports = rank.reports;
    out.node = rank.hello.node();
    out.pod_namespace = rank.hello.pod_namespace();
    out.pod = rank.hello.pod();
    out.slurm_job_id = rank.hello.slurm_job_id();
    out.step_seconds = report.step_seconds();
    out.replay_seconds = report.replay_seconds();
    out.agent_seconds = report.agent_seconds();
    out.step_peak_bytes = report.step_peak_bytes();
    out.saved_bytes = report.saved_bytes();
    out.replayed_ops = report.replayed_ops();
    out.demoted_ops = report.demoted_ops();
    if (report.has_collectives()) {
      const v1::CollectiveReport& collectives = report.collectives();
      out.collectives = {collectives.gather_seconds(), collectives.reduce_seconds(), collectives.covered_bytes(),
                         collectives.covered_ratio(),  collectives.network_bytes(),  collectives.pacing_generation()};
    }
    out.live = rank.live;
  }
  return snapshot;
}

v1::GetJobResponse Job::Describe() const {
  v1::GetJobResponse response;
  const absl::Time now = clock_->Now();
  {
    absl::MutexLock lock(&mutex_);
    *response.mutable_summary() = SummaryLocked();
    for (const auto& [number, rank] : ranks_) {
      v1::RankStatus* status = response.add_ranks();
      status->set_rank(number);
      status->set_node(rank.hello.node());
      status->set_connected(rank.channel != nullptr);
      status->set_active_generation(rank.standing.active_generation);
      status->set_held_generation(rank.standing.held_generation);
      status->set_reports(rank.reports);
      if (rank.reports > 0) *status->mutable_last_report() = rank.last_report;
      status->set_silent_seconds(absl::ToDoubleSeconds(now - rank.last_heard));
      status->set_plan_error(rank.standing.error);
    }
    *response.mutable_constraints() = constraints_;
    response.set_device(incarnation_.device);
    response.set_torch_version(incarnation_.torch_version);
  }
  response.set_constraints_etag(ConstraintsEtag(response.constraints()));
  for (v1::JobEvent& event : events_.Events()) *response.add_events() = std::move(event);
  return response;
}

}  // namespace tidetape::server
