#include "server/store/memory_store.h"

#include <algorithm>
#include <utility>

#include "server/store/errors.h"

namespace tidetape::server {

absl::StatusOr<MemoryStore::JobContent*> MemoryStore::Find(const std::string& job) {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return NoJobError(job);
  return &it->second;
}

absl::StatusOr<std::vector<std::string>> MemoryStore::ListJobs() {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> names;
  for (const auto& [name, content] : jobs_) names.push_back(name);
  return names;
}

absl::Status MemoryStore::CreateJob(const std::string& job) {
  if (job.empty()) return NamelessJobError();
  absl::MutexLock lock(&mutex_);
  jobs_.try_emplace(job);
  return absl::OkStatus();
}

absl::Status MemoryStore::DeleteJob(const std::string& job) {
  absl::MutexLock lock(&mutex_);
  jobs_.erase(job);
  return absl::OkStatus();
}

absl::StatusOr<JobRecord> MemoryStore::GetJob(const std::string& job) {
  absl::MutexLock lock(&mutex_);
  const auto content = Find(job);
  if (!content.ok()) return content.status();
  return (*content)->record;
}

absl::Status MemoryStore::PutEnd(const std::string& job, const std::optional<JobEnd>& end) {
  absl::MutexLock lock(&mutex_);
  const auto content = Find(job);
  if (!content.ok()) return content.status();
  (*content)->record.end = end;
  return absl::OkStatus();
}

absl::Status MemoryStore::AddIncarnation(const std::string& job, const IncarnationRecord& incarnation) {
  absl::MutexLock lock(&mutex_);
  const auto content = Find(job);
  if (!content.ok()) return content.status();
  JobContent& found = **content;
  if (!found.incarnations.empty() && found.incarnations.back().id == incarnation.id) return absl::OkStatus();
  for (const IncarnationRecord& known : found.incarnations) {
    if (known.id == incarnation.id) return KnownIncarnationError(job, incarnation.id);
  }
  found.incarnations.push_back(incarnation);
  found.ranks.clear();
  found.costs.erase(found.costs.lower_bound({incarnation.world_size, 0}), found.costs.end());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<IncarnationRecord>> MemoryStore::ListIncarnations(const std::string& job) {
  absl::MutexLock lock(&mutex_);
  const auto content = Find(job);
  if (!content.ok()) return content.status();
  return (*content)->incarnations;
}

absl::Status MemoryStore::PutTape(const std::string& job, const v1::BlockTape& tape, KnownCosts costs) {
  absl::MutexLock lock(&mutex_);
  const auto content = Find(job);
  if (!content.ok()) return content.status();
  (*content)->tapes[tape.structure_hash()] = tape;
  ++(*content)->record.revision;
  if (costs == KnownCosts::kForget) {
    std::erase_if((*content)->costs, [&tape](const auto& entry) { return entry.first.second == tape.structure_hash(); });
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::BlockTape> MemoryStore::GetTape(const std::string& job, uint64_t structure_hash) {
  absl::MutexLock lock(&mutex_);
  const auto content = Find(job);
  if (!content.ok()) return content.status();
  const auto tape = (*content)->tapes.find(structure_hash);
  if (tape == (*content)->tapes.end()) return NoTapeError(job, structure_hash);
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

void MemoryStore::UpdateRank(const std::string& job, RankUpdate update, Done done) { done(Apply(job, std::move(update))); }

absl::Status MemoryStore::Apply(const std::string& job, RankUpdate update) {
  absl::MutexLock lock(&mutex_);
  const auto content = Find(job);
  if (!content.ok()) return content.status();
  const auto& incarnations = (*content)->incarnations;
  const std::string current = incarnations.empty() ? "" : incarnations.back().id;
  if (update.incarnation != current) return StaleIncarnationError(job, update.incarnation, current);
  RankRecord& rank = (*content)->ranks[update.rank];
  rank.rank = update.rank;
  rank.heard = update.heard;
  if (update.hello.has_value()) rank.hello = *std::move(update.hello);
  if (update.report.has_value()) {
    rank.report = std::move(update.report);
    ++rank.reports;
  }
  if (update.profile.has_value()) rank.profile = std::move(update.profile);
  if (update.standing.has_value()) rank.standing = *std::move(update.standing);
  for (v1::TapeCosts& costs : update.costs) (*content)->costs[{update.rank, costs.structure_hash()}] = std::move(costs);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<RankRecord>> MemoryStore::ListRanks(const std::string& job) {
  absl::MutexLock lock(&mutex_);
  const auto content = Find(job);
  if (!content.ok()) return content.status();
  std::vector<RankRecord> ranks;
  for (const auto& [number, rank] : (*content)->ranks) ranks.push_back(rank);
  return ranks;
}

absl::StatusOr<std::vector<CostRecord>> MemoryStore::ListCosts(const std::string& job) {
  absl::MutexLock lock(&mutex_);
  const auto content = Find(job);
  if (!content.ok()) return content.status();
  std::vector<CostRecord> records;
  for (const auto& [key, costs] : (*content)->costs) records.push_back({key.first, costs});
  return records;
}

absl::Status MemoryStore::CommitPlan(const v1::Plan& plan) {
  absl::MutexLock lock(&mutex_);
  const auto content = Find(plan.job());
  if (!content.ok()) return content.status();
  if (plan.generation() <= (*content)->generation) {
    const bool repeated = !(*content)->plans.empty() && (*content)->plans.front().SerializeAsString() == plan.SerializeAsString();
    return repeated ? absl::OkStatus() : OldGenerationError(plan.job(), plan.generation(), (*content)->generation);
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
  ++(*content)->record.revision;
  return absl::OkStatus();
}

absl::StatusOr<v1::Constraints> MemoryStore::GetConstraints(const std::string& job) {
  absl::MutexLock lock(&mutex_);
  const auto content = Find(job);
  if (!content.ok()) return content.status();
  return (*content)->constraints;
}

absl::Status MemoryStore::PutKnownRun(const KnownRunKey& key, const v1::KnownRun& run, absl::Time used, int64_t keep_bytes) {
  if (absl::Status status = CheckRunSize(run, keep_bytes); !status.ok()) return status;
  absl::MutexLock lock(&mutex_);
  runs_[key] = {run, used};
  std::vector<std::pair<absl::Time, KnownRunKey>> by_use;
  for (const auto& [other, content] : runs_) by_use.emplace_back(content.used, other);
  std::sort(by_use.rbegin(), by_use.rend());
  int64_t bytes = 0;
  for (const auto& [when, other] : by_use) {
    bytes += static_cast<int64_t>(runs_[other].run.ByteSizeLong());
    if (bytes > keep_bytes) runs_.erase(other);
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::KnownRun> MemoryStore::GetKnownRun(const KnownRunKey& key) {
  absl::MutexLock lock(&mutex_);
  const auto found = runs_.find(key);
  if (found == runs_.end()) return NoRunError();
  return found->second.run;
}

absl::StatusOr<std::vector<v1::KnownRun>> MemoryStore::ListKnownRuns(uint64_t structure, int limit) {
  absl::MutexLock lock(&mutex_);
  std::vector<const RunContent*> found;
  for (const auto& [key, content] : runs_) {
    if (key.structure == structure) found.push_back(&content);
  }
  std::sort(found.begin(), found.end(), [](const RunContent* a, const RunContent* b) { return a->used > b->used; });
  std::vector<v1::KnownRun> runs;
  for (const RunContent* content : found) {
    if (static_cast<int>(runs.size()) < limit) runs.push_back(content->run);
  }
  return runs;
}

absl::Status MemoryStore::DropKnownRuns(absl::Time before) {
  absl::MutexLock lock(&mutex_);
  std::erase_if(runs_, [before](const auto& entry) { return entry.second.used < before; });
  return absl::OkStatus();
}

}  // namespace tidetape::server
