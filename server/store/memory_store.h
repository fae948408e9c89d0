// The store that forgets: everything lives in this process.
#ifndef TIDETAPE_SERVER_STORE_MEMORY_STORE_H_
#define TIDETAPE_SERVER_STORE_MEMORY_STORE_H_

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/store/store.h"

namespace tidetape::server {

class MemoryStore final : public Store {
 public:
  bool Durable() const override { return false; }
  absl::Status Check() override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<std::string>> ListJobs() override;
  absl::Status CreateJob(const std::string& job) override;
  absl::Status DeleteJob(const std::string& job) override;
  absl::StatusOr<JobRecord> GetJob(const std::string& job) override;
  absl::Status PutEnd(const std::string& job, const std::optional<JobEnd>& end) override;
  absl::Status AddIncarnation(const std::string& job, const IncarnationRecord& incarnation) override;
  absl::StatusOr<std::vector<IncarnationRecord>> ListIncarnations(const std::string& job) override;
  absl::Status PutTape(const std::string& job, const v1::BlockTape& tape, KnownCosts costs) override;
  absl::StatusOr<v1::BlockTape> GetTape(const std::string& job, uint64_t structure_hash) override;
  absl::StatusOr<std::vector<uint64_t>> ListTapes(const std::string& job) override;
  void UpdateRank(const std::string& job, RankUpdate update, Done done) override;
  absl::StatusOr<std::vector<RankRecord>> ListRanks(const std::string& job) override;
  absl::StatusOr<std::vector<CostRecord>> ListCosts(const std::string& job) override;
  absl::Status CommitPlan(const v1::Plan& plan) override;
  absl::StatusOr<std::vector<v1::Plan>> ListPlans(const std::string& job, int limit) override;
  absl::Status PutConstraints(const std::string& job, const v1::Constraints& constraints) override;
  absl::StatusOr<v1::Constraints> GetConstraints(const std::string& job) override;
  absl::Status PutKnownRun(const KnownRunKey& key, const v1::KnownRun& run, absl::Time used, int64_t keep_bytes) override;
  absl::StatusOr<v1::KnownRun> GetKnownRun(const KnownRunKey& key) override;
  absl::StatusOr<std::vector<v1::KnownRun>> ListKnownRuns(uint64_t structure, int limit) override;
  absl::Status DropKnownRuns(absl::Time before) override;

 private:
  struct JobContent {
    JobRecord record;
    std::vector<IncarnationRecord> incarnations;
    std::map<uint64_t, v1::BlockTape> tapes;
    std::map<int32_t, RankRecord> ranks;
    std::map<std::pair<int32_t, uint64_t>, v1::TapeCosts> costs;  // by rank and structure hash
    std::deque<v1::Plan> plans;                                   // newest first, at most kKeptPlans
    int64_t generation = 0;                                       // highest committed
    v1::Constraints constraints;
  };

  struct RunContent {
    v1::KnownRun run;
    absl::Time used;
  };

  absl::StatusOr<JobContent*> Find(const std::string& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Apply(const std::string& job, RankUpdate update);

  absl::Mutex mutex_;
  std::map<std::string, JobContent> jobs_ ABSL_GUARDED_BY(mutex_);
  std::map<KnownRunKey, RunContent> runs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_MEMORY_STORE_H_
