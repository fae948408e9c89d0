// What the server remembers of jobs, behind one interface for all backends.
//
// Contract, which contract_suite.h checks for every backend:
//
//  - Durability: a durable backend (Durable() is true) has a write on stable storage before the call returns OK; what was
//    acknowledged is there after a crash of the process or the machine. A backend that is not durable says so by Durable() and
//    keeps its content only as long as the object lives. A call that returns an error has changed nothing.
//  - Atomicity and order: each call is atomic; a read sees every write that returned before the read began.
//  - Generations of a job only grow: CommitPlan refuses a plan whose generation is not above every committed one, also after the
//    plans themselves were pruned. Only DeleteJob forgets them.
//  - Every call may be made from any thread. Calls may block on I/O: never make them under a lock that an agent's stream needs.
//
// Errors: NOT_FOUND where the job, tape or plan is not there (the message names it), UNAVAILABLE where the backend cannot be
// reached and trying again makes sense, FAILED_PRECONDITION and INVALID_ARGUMENT as the functions say.
#ifndef TIDETAPE_SERVER_STORE_STORE_H_
#define TIDETAPE_SERVER_STORE_STORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
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

class Store {
 public:
  // A backend keeps at least this many of a job's newest plans.
  static constexpr int kKeptPlans = 64;

  virtual ~Store() = default;

  // True where acknowledged means durable.
  virtual bool Durable() const = 0;

  // Names of all jobs, ascending.
  virtual absl::StatusOr<std::vector<std::string>> ListJobs() = 0;

  // Makes the job where it is not there; an existing one is left as it is. INVALID_ARGUMENT for an empty name.
  virtual absl::Status CreateJob(const std::string& job) = 0;

  // Forgets the job with all that belongs to it.
  virtual absl::Status DeleteJob(const std::string& job) = 0;

  // Adds an incarnation, which is the current one from now on. FAILED_PRECONDITION where its id is there already.
  virtual absl::Status AddIncarnation(const std::string& job, const IncarnationRecord& incarnation) = 0;

  // In the order in which they were added.
  virtual absl::StatusOr<std::vector<IncarnationRecord>> ListIncarnations(const std::string& job) = 0;

  // Adds a tape, or replaces the one with the same structure hash.
  virtual absl::Status PutTape(const std::string& job, const v1::BlockTape& tape) = 0;
  virtual absl::StatusOr<v1::BlockTape> GetTape(const std::string& job, uint64_t structure_hash) = 0;

  // Structure hashes of the job's tapes, ascending.
  virtual absl::StatusOr<std::vector<uint64_t>> ListTapes(const std::string& job) = 0;

  // Adds a plan to the job that it names. FAILED_PRECONDITION unless its generation is above all committed before it.
  virtual absl::Status CommitPlan(const v1::Plan& plan) = 0;

  // At most `limit` plans, newest first.
  virtual absl::StatusOr<std::vector<v1::Plan>> ListPlans(const std::string& job, int limit) = 0;

  // Replaces the job's constraints.
  virtual absl::Status PutConstraints(const std::string& job, const v1::Constraints& constraints) = 0;

  // Empty constraints where none were put.
  virtual absl::StatusOr<v1::Constraints> GetConstraints(const std::string& job) = 0;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_STORE_H_
