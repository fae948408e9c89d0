// A store in an SQL database, whichever it is: one connection that writes, by group commit, and one that reads.
#ifndef TIDETAPE_SERVER_STORE_SQL_STORE_H_
#define TIDETAPE_SERVER_STORE_SQL_STORE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/store/commit_queue.h"
#include "server/store/sql_database.h"
#include "server/store/store.h"

namespace tidetape::server {

class SqlStore final : public Store {
 public:
  // Two connections to one database of the newest schema (see sql_schema.h). What one has committed, the other one sees.
  SqlStore(std::unique_ptr<SqlDatabase> writer, std::unique_ptr<SqlDatabase> reader, CommitQueue::Options options);

  bool Durable() const override { return true; }
  absl::Status Check() override;
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
  absl::StatusOr<SqlResult> Read(const std::string& sql, const std::vector<SqlValue>& parameters);
  absl::Status UpdateJob(const std::string& job, const std::string& sql, std::vector<SqlValue> values);
  // NOT_FOUND where the job is not there and the rows are none, so that an empty answer means what it says.
  absl::StatusOr<SqlResult> ReadOfJob(const std::string& job, const std::string& sql, std::vector<SqlValue> parameters);

  absl::Mutex read_mutex_;
  const std::unique_ptr<SqlDatabase> reader_ ABSL_PT_GUARDED_BY(read_mutex_);
  const std::unique_ptr<SqlDatabase> writer_;
  CommitQueue queue_;  // last: its thread uses the writer
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_SQL_STORE_H_
