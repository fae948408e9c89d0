// The store that forgets: everything lives in this process.
#ifndef TIDETAPE_SERVER_STORE_MEMORY_STORE_H_
#define TIDETAPE_SERVER_STORE_MEMORY_STORE_H_

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/store/store.h"

namespace tidetape::server {

class MemoryStore final : public Store {
 public:
  bool Durable() const override { return false; }
  absl::StatusOr<std::vector<std::string>> ListJobs() override;
  absl::Status CreateJob(const std::string& job) override;
  absl::Status DeleteJob(const std::string& job) override;
  absl::Status AddIncarnation(const std::string& job, const IncarnationRecord& incarnation) override;
  absl::StatusOr<std::vector<IncarnationRecord>> ListIncarnations(const std::string& job) override;
  absl::Status PutTape(const std::string& job, const v1::BlockTape& tape) override;
  absl::StatusOr<v1::BlockTape> GetTape(const std::string& job, uint64_t structure_hash) override;
  absl::StatusOr<std::vector<uint64_t>> ListTapes(const std::string& job) override;
  absl::Status CommitPlan(const v1::Plan& plan) override;
  absl::StatusOr<std::vector<v1::Plan>> ListPlans(const std::string& job, int limit) override;
  absl::Status PutConstraints(const std::string& job, const v1::Constraints& constraints) override;
  absl::StatusOr<v1::Constraints> GetConstraints(const std::string& job) override;

 private:
  struct JobContent {
    std::vector<IncarnationRecord> incarnations;
    std::map<uint64_t, v1::BlockTape> tapes;
    std::deque<v1::Plan> plans;  // newest first, at most kKeptPlans
    int64_t generation = 0;      // highest committed
    v1::Constraints constraints;
  };

  absl::StatusOr<JobContent*> Find(const std::string& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::map<std::string, JobContent> jobs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_MEMORY_STORE_H_
