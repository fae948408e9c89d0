// What the status page shows of a job and only the planner can tell: its frontier, memory through its step, and its values.
//
// Computed on the threads for questions and kept for a while, so that many who look at a page cost one plan; the threads of the
// HTTP port wait a moment for it and no longer, whatever the planner does.
#ifndef TIDETAPE_SERVER_HTTP_JOB_INSIGHTS_H_
#define TIDETAPE_SERVER_HTTP_JOB_INSIGHTS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/common/clock.h"
#include "server/job/job.h"
#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::server {

struct JobInsight {
  absl::Time at;
  int64_t generation = 0;  // of the committed plan then; 0 before one
  // Each with the reason where it cannot be told.
  absl::StatusOr<v1::GetFrontierResponse> frontier;
  absl::StatusOr<v1::GetStepMemoryResponse> memory;
  absl::StatusOr<v1::ExplainPlanResponse> explanation;
};

// Thread-safe. Lives in shared pointers only: what is under way holds it.
class JobInsights : public std::enable_shared_from_this<JobInsights> {
 public:
  struct Options {
    // An insight is used again for this long, unless there is a newer plan.
    absl::Duration fresh = absl::Seconds(30);
    // How long a page waits for a new one.
    absl::Duration patience = absl::Seconds(1);
    // Jobs with insights; the oldest goes.
    size_t jobs = 64;
  };

  // Runs a task elsewhere, some time; false where it will not.
  using Post = std::function<bool(std::function<void()>)>;

  // `clock` outlives the insights and what is under way.
  JobInsights(const Options& options, Clock* clock, Post post) : options_(options), clock_(clock), post_(std::move(post)) {}

  // The newest there is; null where the first is still under way. May be older than `fresh` where a newer one is.
  std::shared_ptr<const JobInsight> Get(const std::shared_ptr<Job>& job);

 private:
  struct Entry {
    std::shared_ptr<const JobInsight> insight;
    bool under_way = false;
  };

  void Compute(const std::shared_ptr<Job>& job);
  void MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  Clock* const clock_;
  const Post post_;
  absl::Mutex mutex_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);  // by job
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_HTTP_JOB_INSIGHTS_H_
