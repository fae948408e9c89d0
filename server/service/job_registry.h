// All jobs of the server.
#ifndef TIDETAPE_SERVER_SERVICE_JOB_REGISTRY_H_
#define TIDETAPE_SERVER_SERVICE_JOB_REGISTRY_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/activation/plan_activation.h"
#include "server/common/clock.h"
#include "server/common/worker.h"
#include "server/job/job.h"
#include "server/store/store.h"

namespace tidetape::server {

// Thread-safe.
class JobRegistry {
 public:
  struct Options {
    // Jobs remembered. Where one more connects, the job without ranks that was silent for longest is forgotten.
    size_t jobs = 1024;
    // A job without a connected rank for this long has ended.
    absl::Duration end_after_silence = absl::Hours(1);
    // A job is forgotten this long after its end.
    absl::Duration retention = absl::Hours(7 * 24);
    // A known run that nobody used for this long is forgotten; see PlanActivation.
    absl::Duration known_run_retention = absl::Hours(90 * 24);
    PlanActivation::Options activation;
  };

  // All outlive the registry, and the planning thread outlives every call into it.
  JobRegistry(const Options& options, Store* store, Clock* clock, Worker* planning_thread);

  // Takes up the store's jobs. Call it once, before any other function.
  absl::Status Restore();

  // The job, made where it is not there. ResourceExhausted where the registry is full of jobs that run.
  absl::StatusOr<std::shared_ptr<Job>> FindOrCreate(const std::string& name) ABSL_LOCKS_EXCLUDED(mutex_);

  // NotFound with a message that lists the jobs there are.
  absl::StatusOr<std::shared_ptr<Job>> Find(const std::string& name) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends and forgets jobs as the options say. Call it every few seconds, from one thread; may block on the store's I/O.
  void Sweep() ABSL_LOCKS_EXCLUDED(mutex_);

  // Closes the streams of all jobs with this status.
  void CloseStreams(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  // By name.
  std::vector<std::shared_ptr<Job>> List() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  std::shared_ptr<Job> MakeJob(const std::string& name) const;
  void ForgetKnownRunsIfDue();
  void ForgetIfDue(const std::string& name) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  Store* const store_;
  Clock* const clock_;
  Worker* const planning_thread_;
  absl::Time known_runs_swept_ = absl::InfinitePast();  // of the sweeping thread only
  mutable absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_SERVICE_JOB_REGISTRY_H_
