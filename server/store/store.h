// Where the server keeps what must outlive it: jobs, their starts, tapes, costs, ranks as their newest reports left them, plans;
// and what must outlive the jobs: the runs that were measured of their blocks.
//
// The contract, which contract_suite.h tests for every backend:
//  - Durability: a durable backend (Durable() is true) has a write on stable storage before it answers OK; what was acknowledged is
//    there after a crash of the process or the machine. A backend that is not durable says so by Durable() and keeps its content
//    only as long as the object lives.
//  - Atomicity and order: each write happens as a whole or not at all; a read sees every write that was acknowledged before the
//    read began. Writes of one thread happen in the order of its calls.
//  - A write that answers NOT_FOUND, FAILED_PRECONDITION or INVALID_ARGUMENT has changed nothing. One that answers anything else
//    may have happened (the answer of a database can be lost) and may be repeated: repeating a write that has happened answers OK
//    and changes nothing, except that UpdateRank counts the report, and PutTape and PutConstraints the revision, once more.
//  - Generations of a job only grow: CommitPlan refuses a plan whose generation is not above every committed one, also after the
//    plans themselves were pruned. Only DeleteJob forgets them.
//  - Every call may be made from any thread. Calls may block on I/O: never make them under a lock that an agent's stream needs.
//
// Errors: NOT_FOUND where the job, tape or plan is not there (the message names it); UNAVAILABLE where the backend cannot write at
// present (the database is away, the disk is full, another server leads) and trying again makes sense; DATA_LOSS where what is
// stored cannot be read; FAILED_PRECONDITION and INVALID_ARGUMENT as the functions say.
#ifndef TIDETAPE_SERVER_STORE_STORE_H_
#define TIDETAPE_SERVER_STORE_STORE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tidetape/v1/known_run.pb.h"
#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::server {

// One start of a job.
struct IncarnationRecord {
  std::string id;
  int64_t order = 0;  // see Hello.incarnation_order
  int32_t world_size = 0;
  absl::Time first_seen = {};
  std::string device = {};
  std::string torch_version = {};
};

// What a rank has told of the plans it got.
struct PlanStanding {
  int64_t held_generation = 0;
  int64_t active_generation = 0;
  std::string error;  // why the rank cannot follow the newest; empty where it can
};

// A rank of the current incarnation, as its newest messages left it.
struct RankRecord {
  int32_t rank = 0;
  v1::Hello hello;
  std::optional<v1::StepReport> report;  // without profile and costs
  std::optional<v1::MemoryProfile> profile;
  int64_t reports = 0;  // of this incarnation
  PlanStanding standing;
  absl::Time heard;
};

// News of one rank. What is not set stays as it was.
struct RankUpdate {
  std::string incarnation;
  int32_t rank = 0;
  absl::Time heard;
  std::optional<v1::Hello> hello;
  std::optional<v1::StepReport> report;  // without profile and costs; counts one more report
  std::optional<v1::MemoryProfile> profile;
  std::optional<PlanStanding> standing;
  // Each replaces what the rank measured of the same tape.
  std::vector<v1::TapeCosts> costs;
};

// How a job has ended.
struct JobEnd {
  absl::Time at;
  std::string reason;
  // By an operator: the incarnation that ran then must not report any more.
  bool refuses = false;
};

// What concerns the job as a whole.
struct JobRecord {
  // Number of tapes and constraints that were put.
  int64_t revision = 0;
  std::optional<JobEnd> end;
};

struct CostRecord {
  int32_t rank = 0;
  v1::TapeCosts costs;
};

// What a run was of. See known_runs.h for how the hashes are made.
struct KnownRunKey {
  uint64_t structure = 0;  // the blocks in their order, device and torch version
  uint64_t shapes = 0;     // sizes and dtypes of their tapes

  friend auto operator<=>(const KnownRunKey&, const KnownRunKey&) = default;
};

class Store {
 public:
  // A backend keeps at least this many of a job's newest plans.
  static constexpr int kKeptPlans = 64;

  // Told once how a write went, on any thread, also before the call returns. Must not block and must not write to the store.
  using Done = std::function<void(const absl::Status&)>;

  // What becomes of the costs of a tape that is replaced.
  enum class KnownCosts { kKeep, kForget };

  virtual ~Store() = default;

  // True where acknowledged means durable.
  virtual bool Durable() const = 0;

  // Makes a small durable write: OK where writes would succeed now.
  virtual absl::Status Check() = 0;

  // Names of all jobs, ascending.
  virtual absl::StatusOr<std::vector<std::string>> ListJobs() = 0;

  // Makes the job where it is not there; an existing one is left as it is. INVALID_ARGUMENT for an empty name.
  virtual absl::Status CreateJob(const std::string& job) = 0;

  // Forgets the job with all that belongs to it. OK where it is not there.
  virtual absl::Status DeleteJob(const std::string& job) = 0;

  virtual absl::StatusOr<JobRecord> GetJob(const std::string& job) = 0;

  // The job has ended, or runs again.
  virtual absl::Status PutEnd(const std::string& job, const std::optional<JobEnd>& end) = 0;

  // Adds an incarnation, which is the current one from now on; ranks of the older one and costs of ranks that it has not got are
  // forgotten. FAILED_PRECONDITION where its id is that of an older one.
  virtual absl::Status AddIncarnation(const std::string& job, const IncarnationRecord& incarnation) = 0;

  // In the order in which they were added.
  virtual absl::StatusOr<std::vector<IncarnationRecord>> ListIncarnations(const std::string& job) = 0;

  // Adds a tape, or replaces the one with the same structure hash.
  virtual absl::Status PutTape(const std::string& job, const v1::BlockTape& tape, KnownCosts costs) = 0;
  virtual absl::StatusOr<v1::BlockTape> GetTape(const std::string& job, uint64_t structure_hash) = 0;

  // Structure hashes of the job's tapes, ascending.
  virtual absl::StatusOr<std::vector<uint64_t>> ListTapes(const std::string& job) = 0;

  // Takes news of a rank and returns; many updates share one write to stable storage. FAILED_PRECONDITION where the incarnation is
  // not the current one; RESOURCE_EXHAUSTED where too many updates wait already.
  virtual void UpdateRank(const std::string& job, RankUpdate update, Done done) = 0;

  // By rank, ascending.
  virtual absl::StatusOr<std::vector<RankRecord>> ListRanks(const std::string& job) = 0;

  // By rank and structure hash, ascending.
  virtual absl::StatusOr<std::vector<CostRecord>> ListCosts(const std::string& job) = 0;

  // Adds a plan to the job that it names. FAILED_PRECONDITION unless its generation is above all committed before it, or it is the
  // newest plan itself.
  virtual absl::Status CommitPlan(const v1::Plan& plan) = 0;

  // At most `limit` plans, newest first.
  virtual absl::StatusOr<std::vector<v1::Plan>> ListPlans(const std::string& job, int limit) = 0;

  // Replaces the job's constraints.
  virtual absl::Status PutConstraints(const std::string& job, const v1::Constraints& constraints) = 0;

  // Empty constraints where none were put.
  virtual absl::StatusOr<v1::Constraints> GetConstraints(const std::string& job) = 0;

  // Adds or replaces a run, used at `used`. Where the store then has more than `keep_bytes` of runs (serialized), those that were
  // used longest ago go. INVALID_ARGUMENT where the run alone is larger.
  virtual absl::Status PutKnownRun(const KnownRunKey& key, const v1::KnownRun& run, absl::Time used, int64_t keep_bytes) = 0;

  // NOT_FOUND where there is none.
  virtual absl::StatusOr<v1::KnownRun> GetKnownRun(const KnownRunKey& key) = 0;

  // At most `limit` runs of one structure, used last first.
  virtual absl::StatusOr<std::vector<v1::KnownRun>> ListKnownRuns(uint64_t structure, int limit) = 0;

  // Forgets the runs that were used before this time.
  virtual absl::Status DropKnownRuns(absl::Time before) = 0;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_STORE_H_
