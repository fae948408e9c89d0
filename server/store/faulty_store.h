// A store whose writes fail on demand, for tests: before the request reaches the backend, or after it has been carried out and
// before its answer comes back.
#ifndef TIDETAPE_SERVER_STORE_FAULTY_STORE_H_
#define TIDETAPE_SERVER_STORE_FAULTY_STORE_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/store/store.h"

namespace tidetape::server {

// Thread-safe. Reads are the backend's.
class FaultyStore final : public Store {
 public:
  enum class Fault { kNone, kBeforeRequest, kAfterResponse };

  explicit FaultyStore(Store* backend) : backend_(backend) {}

  // From now on; not while calls are under way.
  void Use(Store* backend) { backend_ = backend; }

  // The next `writes` writes fail in this way.
  void Fail(Fault fault, int writes = 1) {
    absl::MutexLock lock(&mutex_);
    fault_ = fault;
    left_ = writes;
  }

  bool Durable() const override { return backend_->Durable(); }
  absl::Status Check() override {
    return Write([&] { return backend_->Check(); });
  }
  absl::StatusOr<std::vector<std::string>> ListJobs() override { return backend_->ListJobs(); }
  absl::Status CreateJob(const std::string& job) override {
    return Write([&] { return backend_->CreateJob(job); });
  }
  absl::Status DeleteJob(const std::string& job) override {
    return Write([&] { return backend_->DeleteJob(job); });
  }
  absl::StatusOr<JobRecord> GetJob(const std::string& job) override { return backend_->GetJob(job); }
  absl::Status PutEnd(const std::string& job, const std::optional<JobEnd>& end) override {
    return Write([&] { return backend_->PutEnd(job, end); });
  }
  absl::Status AddIncarnation(const std::string& job, const IncarnationRecord& incarnation) override {
    return Write([&] { return backend_->AddIncarnation(job, incarnation); });
  }
  absl::StatusOr<std::vector<IncarnationRecord>> ListIncarnations(const std::string& job) override {
    return backend_->ListIncarnations(job);
  }
  absl::Status PutTape(const std::string& job, const v1::BlockTape& tape, KnownCosts costs) override {
    return Write([&] { return backend_->PutTape(job, tape, costs); });
  }
  absl::StatusOr<v1::BlockTape> GetTape(const std::string& job, uint64_t structure_hash) override {
    return backend_->GetTape(job, structure_hash);
  }
  absl::StatusOr<std::vector<uint64_t>> ListTapes(const std::string& job) override { return backend_->ListTapes(job); }
  void UpdateRank(const std::string& job, RankUpdate update, Done done) override {
    switch (Next()) {
      case Fault::kNone:
        return backend_->UpdateRank(job, std::move(update), std::move(done));
      case Fault::kBeforeRequest:
        return done(Error());
      case Fault::kAfterResponse:
        return backend_->UpdateRank(job, std::move(update), [done](const absl::Status&) { done(Error()); });
    }
  }
  absl::StatusOr<std::vector<RankRecord>> ListRanks(const std::string& job) override { return backend_->ListRanks(job); }
  absl::StatusOr<std::vector<CostRecord>> ListCosts(const std::string& job) override { return backend_->ListCosts(job); }
  absl::Status CommitPlan(const v1::Plan& plan) override {
    return Write([&] { return backend_->CommitPlan(plan); });
  }
  absl::StatusOr<std::vector<v1::Plan>> ListPlans(const std::string& job, int limit) override {
    return backend_->ListPlans(job, limit);
  }
  absl::Status PutConstraints(const std::string& job, const v1::Constraints& constraints) override {
    return Write([&] { return backend_->PutConstraints(job, constraints); });
  }
  absl::StatusOr<v1::Constraints> GetConstraints(const std::string& job) override { return backend_->GetConstraints(job); }
  absl::Status PutKnownRun(const KnownRunKey& key, const v1::KnownRun& run, absl::Time used, int64_t keep_bytes) override {
    return Write([&] { return backend_->PutKnownRun(key, run, used, keep_bytes); });
  }
  absl::StatusOr<v1::KnownRun> GetKnownRun(const KnownRunKey& key) override { return backend_->GetKnownRun(key); }
  absl::StatusOr<std::vector<v1::KnownRun>> ListKnownRuns(uint64_t structure, int limit) override {
    return backend_->ListKnownRuns(structure, limit);
  }
  absl::Status DropKnownRuns(absl::Time before) override {
    return Write([&] { return backend_->DropKnownRuns(before); });
  }

 private:
  static absl::Status Error() { return absl::UnavailableError("a fault of the test"); }

  Fault Next() {
    absl::MutexLock lock(&mutex_);
    if (left_ == 0) return Fault::kNone;
    --left_;
    return fault_;
  }

  absl::Status Write(const std::function<absl::Status()>& write) {
    const Fault fault = Next();
    if (fault == Fault::kBeforeRequest) return Error();
    const absl::Status status = write();
    return fault == Fault::kAfterResponse ? Error() : status;
  }

  Store* backend_;
  absl::Mutex mutex_;
  Fault fault_ ABSL_GUARDED_BY(mutex_) = Fault::kNone;
  int left_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_FAULTY_STORE_H_
