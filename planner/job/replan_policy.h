// When a plan in force no longer fits what the ranks measure.
//
// A plan that breaks its limit is replaced at once. One whose prediction is merely off is replaced only after several measurements
// in a row say so, so that plans do not flap with a step that varies.
#ifndef TIDETAPE_PLANNER_JOB_REPLAN_POLICY_H_
#define TIDETAPE_PLANNER_JOB_REPLAN_POLICY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/job/problem_change.h"
#include "planner/model/problem.h"
#include "planner/planner.h"

namespace tidetape::planner {

struct ReplanThresholds {
  // Peak of the plan in force under the newest measurement, off its prediction by more than this share of it.
  double peak_ratio = 0.02;
  // The same for the time of its replay and its moves, where another plan would also be faster by more than `gain_ratio` of
  // replaying everything: a machine that is slower as a whole is no reason to switch.
  double replay_ratio = 0.20;
  double gain_ratio = 0.02;
  // Measurements in a row that must be off before a plan within its limit is replaced.
  int32_t patience = 2;
};

enum class ReplanCause { kNone, kFirst, kLimit, kBlocks, kOverLimit, kPeak, kCosts };

// Why a new plan is needed: kNone where it is not.
struct ReplanReason {
  ReplanCause cause = ReplanCause::kNone;
  std::string text;  // one sentence for people; empty where the plan in force stands
};

// Watches one plan of one job. Not thread-safe.
class ReplanPolicy {
 public:
  explicit ReplanPolicy(ReplanThresholds thresholds = {}) : thresholds_(thresholds) {}

  // The plan that is now in force (published), with the problem and the structure hashes (one a block) that it was made for.
  void Follow(const PlanningProblem& problem, const std::vector<uint64_t>& structure_hashes, const StepPlan& plan);

  // Why `problem`, the newest measurement, needs a new plan, and what has changed most since the plan in force was made. Errors are
  // those of EvaluatePlan.
  absl::StatusOr<ReplanReason> ReasonToReplan(const PlanningProblem& problem, const std::vector<uint64_t>& structure_hashes);

 private:
  ReplanThresholds thresholds_;
  bool has_plan_ = false;
  int64_t memory_limit_bytes_ = 0;
  int64_t host_bytes_limit_ = 0;
  std::vector<uint64_t> structure_hashes_;
  std::vector<std::vector<int32_t>> saved_;  // as for EvaluatePlan
  std::vector<std::vector<int32_t>> moved_;
  ProblemDigest digest_;
  int64_t step_peak_bytes_ = 0;
  double seconds_ = 0;  // of replay and moves
  bool feasible_ = true;
  int32_t off_in_a_row_ = 0;
};

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_JOB_REPLAN_POLICY_H_
