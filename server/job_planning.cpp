// A job's way to its plans: what is missing, what a plan is made from, and what becomes of it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "net/error_info.h"
#include "planner/io/pacing_io.h"
#include "planner/merge_ranks.h"
#include "server/job.h"
#include "server/limit_text.h"
#include "server/log.h"
#include "server/pins.h"

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

std::string Job::MissingLocked() const {
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
    } else if (it->second.profile == nullptr || !it->second.profile->steady) {
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
  std::string missing = MissingLocked();
  if (!missing.empty() || planning_status_.ok()) return missing;
  return absl::StrCat("planning to succeed: ", planning_status_.message());
}

absl::StatusOr<PlanningInput> Job::MakePlanningInput() { return ReadPlanningInput(true); }

absl::StatusOr<PlanningInput> Job::PeekPlanningInput() { return ReadPlanningInput(false); }

absl::StatusOr<PlanningInput> Job::ReadPlanningInput(bool take) {
  PlanningInput input;
  JobMeasurements::Snapshot measured;
  std::vector<std::pair<int32_t, std::shared_ptr<const planner::MemoryProfile>>> profiles;
  v1::Constraints constraints;
  int64_t limit = 0;
  {
    absl::MutexLock lock(&mutex_);
    const std::string missing = MissingLocked();
    if (!missing.empty()) {
      return net::WithErrorInfo(absl::FailedPreconditionError(absl::StrCat("job '", name_, "' waits for ", missing)),
                                "JOB_NOT_READY", {{"job", name_}, {"waiting_for", missing}});
    }
    measured = measured_.snapshot();
    constraints = constraints_;
    limit = LimitLocked();
    input.newly_measured = true;
    for (const auto& [number, rank] : ranks_) {
      profiles.emplace_back(number, rank.profile);
      input.newly_measured = input.newly_measured && rank.fresh_profile;
    }
    if (take && input.newly_measured) {
      for (auto& [number, rank] : ranks_) rank.fresh_profile = false;
    }
    input.incarnation = incarnation_.id;
    input.committed = committed_;
    if (!constraints.disabled()) input.links = LinksLocked();
    input.next_generation = highest_generation_ + 1;
    input.revision = revision_;
    if (!constraints.disabled()) input.frozen_generation = constraints.frozen_generation();
    if (committed_ == nullptr) {
      input.forced_reason = "the first plan of this start of the job";
    } else {
      if (revision_ != planned_revision_) input.forced_reason = revision_reason_;
      if (limit != planned_limit_) {
        input.forced_reason = absl::StrCat("the limit changed from ", DescribeLimit(planned_limit_), " to ", DescribeLimit(limit));
      }
      for (const auto& [number, rank] : ranks_) {
        const int64_t told = std::max(rank.standing.held_generation, rank.standing.active_generation);
        if (told <= committed_->generation()) continue;
        input.recommit = true;
        input.forced_reason =
            absl::StrCat("rank ", number, " holds generation ", told, ", above the server's ", committed_->generation());
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
  input.problem = *std::move(problem);
  for (const planner::ProfiledBlock& block : profiles.front().second->blocks) {
    input.structure_hashes.push_back(block.structure_hash);
  }
  if (!constraints.disabled()) ApplyPins(constraints.pins(), input.problem);
  return input;
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
