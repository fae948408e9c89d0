// A job at one moment, in numbers, for metrics.
#ifndef TIDETAPE_SERVER_JOB_JOB_SNAPSHOT_H_
#define TIDETAPE_SERVER_JOB_JOB_SNAPSHOT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::server {

// What was alive through a step that a rank measured.
struct LiveMemory {
  int64_t step = 0;
  int64_t generation = 0;
  int64_t step_peak_bytes = 0;
  std::vector<int64_t> live_bytes;  // as in StepReport
};

// Collectives of one rank in its newest step.
struct CollectiveSnapshot {
  double gather_seconds = 0;
  double reduce_seconds = 0;
  int64_t covered_bytes = 0;
  double covered_ratio = 0;
  int64_t network_bytes = 0;
  int64_t pacing_generation = 0;
};

// One rank; the figures are those of its newest report, and mean nothing where `reports` is 0.
struct RankSnapshot {
  int32_t rank = 0;
  bool connected = false;
  bool cannot_follow = false;  // the committed plan
  int64_t reports = 0;         // taken in this incarnation
  // Where it runs, as in Hello.
  std::string node;
  std::string pod_namespace;
  std::string pod;
  std::string slurm_job_id;
  double step_seconds = 0;
  double replay_seconds = 0;
  double agent_seconds = 0;
  int64_t step_peak_bytes = 0;
  int64_t saved_bytes = 0;
  int64_t replayed_ops = 0;
  int64_t demoted_ops = 0;
  // Of its collectives; unset where they are FSDP2's own.
  std::optional<CollectiveSnapshot> collectives;
  // Of the newest step that it measured; null before one, and after a restart of the server.
  std::shared_ptr<const LiveMemory> live;
};

// What the committed plan promises.
struct PlanSnapshot {
  double gap_ratio = 0;
  bool feasible = true;
  int64_t saved_bytes = 0;
  int64_t least_peak_bytes = 0;
  std::optional<v1::PacingPlan> pacing;
};

struct JobSnapshot {
  v1::JobSummary summary;
  std::vector<RankSnapshot> ranks;  // by rank, ascending
  std::optional<PlanSnapshot> plan;
  bool planning_failed = false;  // the last attempt
  absl::Time last_heard;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_JOB_JOB_SNAPSHOT_H_
