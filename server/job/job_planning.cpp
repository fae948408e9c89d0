// A job's way to its plans: what is missing, what a plan is made from, and what becomes of it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "net/error_info.h"
#include "planner/io/pacing_io.h"
#include "planner/job/merge_ranks.h"
#include "server/common/log.h"
#include "server/job/job.h"
#include "server/job/known_runs.h"
#include "server/job/pins.h"
#include "server/text/limit_text.h"
#include "server/text/units.h"

namespace tidetape::server {

int64_t Job::LimitLocked() const {
  if (constraints_.disabled()) return -1;
  if (constraints_.has_memory_limit_bytes()) return constraints_.memory_limit_bytes();
  int64_t smallest = INT64_MAX;
  bool least_memory = false;
  for (const auto& [number, rank] : ranks_) {
    const int64_t limit = rank.hello.memory_limit_bytes();
    if (limit > 0) smallest = std::min(smallest, limit);
    if (limit == 0) least_memory = true;
  }
  if (smallest != INT64_MAX) return smallest;
  return least_memory ? 0 : -1;
}

std::string Job::MissingLocked(Profiles profiles) const {
  // Names few and counts the rest: a job may have thousands of ranks.
  const auto list = [](const std::vector<std::string>& items) {
    constexpr size_t kNamed = 4;
    std::string text = absl::StrJoin(items.begin(), items.begin() + std::min(items.size(), kNamed), ", ");
    return items.size() <= kNamed ? text : absl::StrCat(text, " and ", items.size() - kNamed, " more");
  };
  std::vector<std::string> unconnected, unsteady, missing;
  for (int32_t number = 0; number < incarnation_.world_size; ++number) {
    const auto it = ranks_.find(number);
    if (it == ranks_.end() || it->second.channel == nullptr) {
      unconnected.push_back(absl::StrCat(number));
    } else if (it->second.profile == nullptr ||
               !(it->second.profile->steady || (profiles == Profiles::kSteadyOrEarly && it->second.profile->early))) {
      unsteady.push_back(absl::StrCat(number));
    } else {
      for (const uint64_t hash : measured_.MissingTapes(*it->second.profile)) {
        missing.push_back(absl::StrCat(absl::Hex(hash, absl::kZeroPad16), " (rank ", number, ")"));
      }
    }
  }
  if (incarnation_.id.empty()) return "the first rank";
  if (!unconnected.empty()) return absl::StrCat("ranks to connect: ", list(unconnected), " of ", incarnation_.world_size);
  if (!unsteady.empty()) return absl::StrCat("a profile of a steady step from ranks: ", list(unsteady));
  if (!missing.empty()) return absl::StrCat("tapes: ", list(missing));
  return "";
}

std::optional<planner::LinkReport> Job::LinksLocked() const {
  std::vector<planner::LinkReport> ranks;
  for (const auto& [number, rank] : ranks_) {
    const v1::StepReport& report = rank.last_report;
    // Nothing to pace, or ranks that no formula knows.
    if (!report.has_collectives() || report.collectives().nodes() == 0) return std::nullopt;
    if (!report.collectives().has_local() && !report.collectives().has_network()) return std::nullopt;
    ranks.push_back(planner::LinksFromProto(report.collectives(), report.step_seconds()));
  }
  auto merged = planner::MergeLinks(ranks);
  if (merged.ok()) return *std::move(merged);
  spdlog::warn("no pacing: {} job={}", std::string(merged.status().message()), name_);
  return std::nullopt;
}

std::string Job::WaitingForLocked() const {
  std::string missing = MissingLocked(Profiles::kSteady);
  if (!missing.empty() || planning_status_.ok()) return missing;
  return absl::StrCat("planning to succeed: ", planning_status_.message());
}

bool Job::RoundCompleteLocked() const {
  if (static_cast<int32_t>(ranks_.size()) != incarnation_.world_size) return false;
  // The first plan takes whatever each rank has; early rounds may have used some ranks' steady profiles up.
  return std::all_of(ranks_.begin(), ranks_.end(), [this](const auto& entry) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const Rank& rank = entry.second;
    return rank.fresh_profile || (committed_ == nullptr && rank.profile != nullptr && rank.profile->steady);
  });
}

std::string Job::LearnResidual(int32_t rank, const v1::StepReport& report) {
  // A plan that keeps everything promises no limit.
  if (committed_ == nullptr || report.generation() != committed_->generation() || committed_->memory_limit_bytes() < 0) return "";
  // What is held free may be used.
  const int64_t predicted =
      committed_->step_peak_bytes() + committed_->headroom_bytes() + residual_bytes_ - committed_->residual_bytes();
  const int64_t above = peaks_.Add(rank, report.step_peak_bytes(), predicted);
  if (above == 0) return "";
  residual_bytes_ += above;
  residual_reason_ =
      absl::StrFormat("rank %d measured step peaks %s and more above the %s that were predicted, in %d steps in a row", rank,
                      FormatBytes(above), FormatBytes(predicted), peaks_.options().patience);
  return absl::StrCat(residual_reason_, "; plans count that in from now on");
}

absl::StatusOr<PlanningInput> Job::MakePlanningInput() { return ReadPlanningInput(Profiles::kSteady, true); }

absl::StatusOr<PlanningInput> Job::PeekPlanningInput() { return ReadPlanningInput(Profiles::kSteady, false); }

absl::StatusOr<PlanningInput> Job::MakeEarlyInput() {
  auto input = ReadPlanningInput(Profiles::kSteadyOrEarly, true);
  if (!input.ok()) return input;
  if (input->committed != nullptr || !input->newly_measured) {
    return absl::FailedPreconditionError(absl::StrCat("job '", name_, "' has a plan, or nothing new to look up"));
  }
  return input;
}

absl::StatusOr<PlanningInput> Job::ReadPlanningInput(Profiles accepted, bool take) {
  PlanningInput input;
  JobMeasurements::Snapshot measured;
  std::vector<std::pair<int32_t, std::shared_ptr<const planner::MemoryProfile>>> profiles;
  int64_t limit = 0;
  IncarnationRecord incarnation;
  {
    absl::MutexLock lock(&mutex_);
    const std::string missing = MissingLocked(accepted);
    if (!missing.empty()) {
      return net::WithErrorInfo(absl::FailedPreconditionError(absl::StrCat("job '", name_, "' waits for ", missing)),
                                "JOB_NOT_READY", {{"job", name_}, {"waiting_for", missing}});
    }
    measured = measured_.snapshot();
    input.constraints = constraints_;
    limit = LimitLocked();
    input.newly_measured = true;
    for (const auto& [number, rank] : ranks_) {
      profiles.emplace_back(number, rank.profile);
      input.newly_measured = input.newly_measured && rank.fresh_profile;
      input.plain_step_seconds = std::max<double>(input.plain_step_seconds, rank.plain_step_seconds.value());
    }
    if (take && input.newly_measured) {
      for (auto& [number, rank] : ranks_) rank.fresh_profile = false;
    }
    incarnation = incarnation_;
    input.residual_bytes = residual_bytes_;
    input.incarnation = incarnation_.id;
    input.committed = committed_;
    if (!constraints_.disabled()) input.links = LinksLocked();
    input.next_generation = highest_generation_ + 1;
    input.revision = revision_;
    if (!constraints_.disabled()) input.frozen_generation = constraints_.frozen_generation();
    if (committed_ == nullptr) {
      input.forced_reason = "the first plan of this start of the job";
    } else {
      const auto force = [&input](PlanCause cause, std::string reason) {
        input.forced_cause = cause;
        input.forced_reason = std::move(reason);
      };
      if (residual_bytes_ != planned_residual_) force(PlanCause::kResidual, residual_reason_);
      if (revision_ != planned_revision_) force(PlanCause::kChange, revision_reason_);
      if (limit != planned_limit_) {
        force(PlanCause::kLimit,
              absl::StrCat("the limit changed from ", DescribeLimit(planned_limit_), " to ", DescribeLimit(limit)));
      }
      for (const auto& [number, rank] : ranks_) {
        const int64_t told = std::max(rank.standing.held_generation, rank.standing.active_generation);
        if (told <= committed_->generation()) continue;
        input.recommit = true;
        force(PlanCause::kAhead,
              absl::StrCat("rank ", number, " holds generation ", told, ", above the server's ", committed_->generation()));
      }
    }
  }
  const planner::CostsByHash no_costs;
  std::vector<planner::RankMeasurement> measurements;
  for (const auto& [number, profile] : profiles) {
    const auto own = measured.costs.find(number);
    measurements.push_back({number, profile.get(), own == measured.costs.end() ? &no_costs : own->second.get()});
  }
  auto problem = planner::MergeRanks(*measured.tapes, measurements, limit);
  // Nothing is missing, so whatever does not fit together is wrong.
  if (!problem.ok()) return absl::InvalidArgumentError(problem.status().message());
  UseMeasured(*std::move(problem), input.residual_bytes, input);
  for (const planner::ProfiledBlock& block : profiles.front().second->blocks) {
    input.structure_hashes.push_back(block.structure_hash);
  }
  input.run_key = KeyOfRun(*input.measured, input.structure_hashes, incarnation.device, incarnation.torch_version);
  return input;
}

void UseMeasured(planner::PlanningProblem measured, int64_t residual_bytes, PlanningInput& input) {
  input.residual_bytes = residual_bytes;
  input.measured = std::make_shared<const planner::PlanningProblem>(std::move(measured));
  input.problem = *input.measured;
  AddToBases(residual_bytes, input.problem);
  if (!input.constraints.disabled()) ApplyPins(input.constraints.pins(), input.problem);
}

absl::StatusOr<std::vector<v1::KnownRun>> Job::KnownRuns(const PlanningInput& input) const {
  constexpr int kRuns = 16;
  return store_->ListKnownRuns(input.run_key.structure, kRuns);
}

bool Job::Adopt(const PlanningInput& input, const v1::Plan& plan) { return Publish(plan, input.revision); }

absl::Status Job::TakeUpStoredPlan() {
  const auto plans = store_->ListPlans(name_, 1);
  if (!plans.ok()) return plans.status();
  if (!plans->empty()) Publish(plans->front(), plans->front().revision());
  return absl::OkStatus();
}

bool Job::Publish(const v1::Plan& plan, int64_t revision) {
  auto adopted = std::make_shared<const v1::Plan>(plan);
  std::vector<std::shared_ptr<RankChannel>> channels;
  {
    absl::MutexLock lock(&mutex_);
    highest_generation_ = std::max(highest_generation_, plan.generation());
    if (incarnation_.id != plan.incarnation()) return false;
    committed_ = adopted;
    planned_revision_ = revision;
    planned_limit_ = plan.memory_limit_bytes();
    residual_bytes_ = std::max(residual_bytes_, plan.residual_bytes());
    planned_residual_ = plan.residual_bytes();
    peaks_.Reset();
    planning_status_ = absl::OkStatus();
    for (auto& [number, rank] : ranks_) {
      rank.standing.error.clear();
      if (rank.channel != nullptr) channels.push_back(rank.channel);
    }
  }
  for (const auto& channel : channels) channel->SendPlan(adopted);
  return true;
}

void Job::Confirm(const PlanningInput& input) {
  absl::MutexLock lock(&mutex_);
  if (incarnation_.id != input.incarnation) return;
  planned_revision_ = input.revision;
  planned_residual_ = input.residual_bytes;
  planning_status_ = absl::OkStatus();
}

void Job::SetPlanningStatus(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (planning_status_ == status) return;
    planning_status_ = status;
  }
  if (!status.ok()) AddEvent(absl::StrCat("planning failed: ", std::string(status.message())));
}

}  // namespace tidetape::server
