#include "server/service/job_registry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "net/error_info.h"
#include "server/common/log.h"

namespace tidetape::server {
namespace {

constexpr absl::Duration kKnownRunsSweep = absl::Hours(1);

absl::Status JobNotFound(const std::string& name, const std::string& others) {
  return net::WithErrorInfo(absl::NotFoundError(absl::StrCat("no job '", name, "'; ", others)), "JOB_NOT_FOUND", {{"job", name}});
}

}  // namespace

JobRegistry::JobRegistry(const Options& options, Store* store, Clock* clock, Worker* planning_thread)
    : options_(options), store_(store), clock_(clock), planning_thread_(planning_thread) {}

std::shared_ptr<Job> JobRegistry::MakeJob(const std::string& name) const {
  auto activation = std::make_shared<PlanActivation>(options_.activation, store_, clock_, planning_thread_);
  return std::make_shared<Job>(name, store_, clock_,
                               [activation](std::shared_ptr<Job> job) { activation->Consider(std::move(job)); });
}

absl::Status JobRegistry::Restore() {
  const auto names = store_->ListJobs();
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    std::shared_ptr<Job> job = MakeJob(name);
    if (absl::Status status = job->Restore(); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat("restoring job '", name, "': ", status.message()));
    }
    absl::MutexLock lock(&mutex_);
    jobs_[name] = std::move(job);
  }
  spdlog::info("restored {} jobs, the store {}", names->size(), store_->Durable() ? "is durable" : "forgets when the server stops");
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Job>> JobRegistry::FindOrCreate(const std::string& name) {
  // The store is written under the lock: a job must be there before anybody finds it. Streams that already run do not need this
  // lock.
  absl::MutexLock lock(&mutex_);
  const auto it = jobs_.find(name);
  if (it != jobs_.end()) return it->second;
  if (jobs_.size() >= options_.jobs) {
    if (absl::Status status = MakeRoom(); !status.ok()) return status;
  }
  if (absl::Status status = store_->CreateJob(name); !status.ok()) return status;
  return jobs_[name] = MakeJob(name);
}

absl::Status JobRegistry::MakeRoom() {
  auto oldest = jobs_.end();
  for (auto it = jobs_.begin(); it != jobs_.end(); ++it) {
    if (it->second->connected()) continue;
    if (oldest == jobs_.end() || it->second->last_heard() < oldest->second->last_heard()) oldest = it;
  }
  if (oldest == jobs_.end()) {
    return net::WithErrorInfo(
        absl::ResourceExhaustedError(absl::StrCat("the server has ", jobs_.size(), " running jobs, which is its limit")),
        "TOO_MANY_JOBS");
  }
  spdlog::info("forgetting a job that was silent for longest, to make room job={}", oldest->first);
  if (absl::Status status = store_->DeleteJob(oldest->first); !status.ok()) return status;
  jobs_.erase(oldest);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Job>> JobRegistry::Find(const std::string& name) const {
  absl::MutexLock lock(&mutex_);
  const auto it = jobs_.find(name);
  if (it != jobs_.end()) return it->second;
  if (jobs_.empty()) return JobNotFound(name, "no job has connected yet");
  constexpr size_t kListed = 20;
  std::vector<std::string> names;
  for (const auto& [known, job] : jobs_) {
    if (names.size() < kListed) names.push_back(known);
  }
  return JobNotFound(name, absl::StrCat("known jobs: ", absl::StrJoin(names, ", "),
                                        jobs_.size() > kListed ? absl::StrCat(" and ", jobs_.size() - kListed, " more") : ""));
}

std::vector<std::shared_ptr<Job>> JobRegistry::List() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<Job>> jobs;
  for (const auto& [name, job] : jobs_) jobs.push_back(job);
  return jobs;
}

void JobRegistry::ForgetKnownRunsIfDue() {
  const absl::Time now = clock_->Now();
  if (now - known_runs_swept_ < kKnownRunsSweep) return;
  known_runs_swept_ = now;
  const absl::Status status = store_->DropKnownRuns(now - options_.known_run_retention);
  if (!status.ok()) spdlog::warn("cannot forget old runs yet: {}", std::string(status.message()));
}

void JobRegistry::Sweep() {
  ForgetKnownRunsIfDue();
  for (const auto& job : List()) {
    if (absl::Status status = job->Sweep(options_.end_after_silence); !status.ok()) {
      spdlog::warn("cannot look after the job: {} job={}", std::string(status.message()), job->name());
      continue;
    }
    if (clock_->Now() - job->ended_at() >= options_.retention) ForgetIfDue(job->name());
  }
}

void JobRegistry::ForgetIfDue(const std::string& name) {
  // Under the lock, so that a rank that comes back just now finds either the job with all it had, or a new one.
  absl::MutexLock lock(&mutex_);
  const auto it = jobs_.find(name);
  if (it == jobs_.end() || it->second->connected() || clock_->Now() - it->second->ended_at() < options_.retention) return;
  if (absl::Status status = store_->DeleteJob(name); !status.ok()) {
    spdlog::warn("cannot forget the job yet: {} job={}", std::string(status.message()), name);
    return;
  }
  spdlog::info("forgot a job that ended {} ago job={}", absl::FormatDuration(clock_->Now() - it->second->ended_at()), name);
  jobs_.erase(it);
}

void JobRegistry::CloseStreams(const absl::Status& status) {
  for (const auto& job : List()) job->CloseStreams(status);
}

}  // namespace tidetape::server
