#include "server/store/memory_store.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tidetape::server {

absl::StatusOr<MemoryStore::JobContent*> MemoryStore::Find(const std::string& job) {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return absl::NotFoundError(absl::StrCat("the store has no job '", job, "'"));
  return &it->second;
}

absl::StatusOr<std::vector<std::string>> MemoryStore::ListJobs() {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> names;
  for (const auto& [name, content] : jobs_) names.push_back(name);
  return names;
}

absl::Status MemoryStore::CreateJob(const std::string& job) {
  if (job.empty()) return absl::InvalidArgumentError("a job needs a name");
  absl::MutexLock lock(&mutex_);
  jobs_.try_emplace(job);
  return absl::OkStatus();
}

absl::Status MemoryStore::DeleteJob(const std::string& job) {
  absl::MutexLock lock(&mutex_);
  const auto content = Find(job);
  if (!content.ok()) return content.status();
  jobs_.erase(job);
  return absl::OkStatus();
}

absl::Status MemoryStore::AddIncarnation(const std::string& job, const IncarnationRecord& incarnation) {
  absl::MutexLock lock(&mutex_);
  const auto content = Find(job);
  if (!content.ok()) return content.status();
  for (const IncarnationRecord& known : (*content)->incarnations) {
    if (known.id == incarnation.id) {
      return absl::FailedPreconditionError(absl::StrCat("job '", job, "' already had incarnation '", incarnation.id, "'"));
    }
  }
  (*content)->incarnations.push_back(incarnation);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<IncarnationRecord>> MemoryStore::ListIncarnations(const std::string& job) {
  absl::MutexLock lock(&mutex_);
  const auto content = Find(job);
  if (!content.ok()) return content.status();
  return (*content)->incarnations;
}

absl::Status MemoryStore::PutTape(const std::string& job, const v1::BlockTape& tape) {
  absl::MutexLock lock(&mutex_);
  const auto content = Find(job);
  if (!content.ok()) return content.status();
  (*content)->tapes[tape.structure_hash()] = tape;
  return absl::OkStatus();
}

absl::StatusOr<v1::BlockTape> MemoryStore::GetTape(const std::string& job, uint64_t structure_hash) {
  absl::MutexLock lock(&mutex_);
  const auto content = Find(job);
  if (!content.ok()) return content.status();
  const auto tape = (*content)->tapes.find(structure_hash);
  if (tape == (*content)->tapes.end()) {
    return absl::NotFoundError(absl::StrCat("job '", job, "' has no tape ", absl::Hex(structure_hash, absl::kZeroPad16)));
  }
  return tape->second;
}

absl::StatusOr<std::vector<uint64_t>> MemoryStore::ListTapes(const std::string& job) {
  absl::MutexLock lock(&mutex_);
  const auto content = Find(job);
  if (!content.ok()) return content.status();
  std::vector<uint64_t> hashes;
  for (const auto& [hash, tape] : (*content)->tapes) hashes.push_back(hash);
  return hashes;
}

absl::Status MemoryStore::CommitPlan(const v1::Plan& plan) {
  absl::MutexLock lock(&mutex_);
  const auto content = Find(plan.job());
  if (!content.ok()) return content.status();
  if (plan.generation() <= (*content)->generation) {
    return absl::FailedPreconditionError(absl::StrCat("job '", plan.job(), "': generation ", plan.generation(),
                                                      " is not above generation ", (*content)->generation, ", committed before"));
  }
  (*content)->generation = plan.generation();
  (*content)->plans.push_front(plan);
  if ((*content)->plans.size() > kKeptPlans) (*content)->plans.pop_back();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::Plan>> MemoryStore::ListPlans(const std::string& job, int limit) {
  absl::MutexLock lock(&mutex_);
  const auto content = Find(job);
  if (!content.ok()) return content.status();
  const auto& plans = (*content)->plans;
  const auto count = std::min(plans.size(), static_cast<size_t>(std::max(limit, 0)));
  return std::vector<v1::Plan>(plans.begin(), plans.begin() + static_cast<std::ptrdiff_t>(count));
}

absl::Status MemoryStore::PutConstraints(const std::string& job, const v1::Constraints& constraints) {
  absl::MutexLock lock(&mutex_);
  const auto content = Find(job);
  if (!content.ok()) return content.status();
  (*content)->constraints = constraints;
  return absl::OkStatus();
}

absl::StatusOr<v1::Constraints> MemoryStore::GetConstraints(const std::string& job) {
  absl::MutexLock lock(&mutex_);
  const auto content = Find(job);
  if (!content.ok()) return content.status();
  return (*content)->constraints;
}

}  // namespace tidetape::server
