#include "planner/job/replan_policy.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tidetape::planner {
namespace {

std::string DescribeLimit(int64_t bytes) {
  if (bytes == kUnlimitedBytes) return "keep everything";
  if (bytes == 0) return "least memory";
  return absl::StrCat(bytes, " bytes");
}

// What is so, and why as far as that is known.
std::string With(const std::string& text, const std::string& change) {
  return change.empty() ? text : absl::StrCat(text, ": ", change);
}

// Time to run every op of every block again, seconds; of a block with options, the time of its slowest one.
double RecomputeSeconds(const PlanningProblem& problem) {
  double seconds = 0;
  for (const BlockInstance& block : problem.blocks) {
    double slowest = 0;
    for (const BlockOption& option : block.options) slowest = std::max(slowest, option.seconds);
    seconds += slowest;
    if (!block.options.empty()) continue;
    for (const Op& op : problem.tapes[block.tape].ops) seconds += op.cost_seconds;
  }
  return seconds;
}

}  // namespace

void ReplanPolicy::Follow(const PlanningProblem& problem, const std::vector<uint64_t>& structure_hashes, const StepPlan& plan) {
  has_plan_ = true;
  memory_limit_bytes_ = problem.memory_limit_bytes;
  host_bytes_limit_ = problem.host_bytes_limit;
  structure_hashes_ = structure_hashes;
  digest_ = ProblemDigest(problem);
  saved_.clear();
  moved_.clear();
  for (const BlockPlan& block : plan.blocks) {
    saved_.push_back(block.option < 0 ? block.saved : std::vector<int32_t>{block.option});
    moved_.push_back(block.moved);
  }
  step_peak_bytes_ = plan.step_peak_bytes;
  seconds_ = SecondsOf(plan);
  feasible_ = plan.feasible;
  off_in_a_row_ = 0;
}

absl::StatusOr<ReplanReason> ReplanPolicy::ReasonToReplan(const PlanningProblem& problem,
                                                          const std::vector<uint64_t>& structure_hashes) {
  if (!has_plan_) return ReplanReason{ReplanCause::kFirst, "first plan"};
  if (problem.memory_limit_bytes != memory_limit_bytes_) {
    return ReplanReason{ReplanCause::kLimit, absl::StrCat("the limit changed from ", DescribeLimit(memory_limit_bytes_), " to ",
                                                          DescribeLimit(problem.memory_limit_bytes))};
  }
  if (structure_hashes != structure_hashes_) return ReplanReason{ReplanCause::kBlocks, "the blocks of the step changed"};
  if (problem.host_bytes_limit != host_bytes_limit_) {
    return ReplanReason{ReplanCause::kLimit, absl::StrCat("the room on the host changed from ", host_bytes_limit_, " to ",
                                                          problem.host_bytes_limit, " bytes")};
  }
  const absl::StatusOr<StepPlan> now = EvaluatePlan(problem, saved_, moved_);
  if (!now.ok()) return now.status();
  const bool limited = problem.memory_limit_bytes > 0 && problem.memory_limit_bytes != kUnlimitedBytes;
  // A plan that was infeasible from the start is the least there is; only a changed prediction is news.
  if (limited && feasible_ && now->step_peak_bytes > problem.memory_limit_bytes) {
    return ReplanReason{ReplanCause::kOverLimit, With(absl::StrCat("the plan in force would reach ", now->step_peak_bytes,
                                                                   " bytes, above the limit of ", problem.memory_limit_bytes),
                                                      digest_.LargestMemoryChange(ProblemDigest(problem)))};
  }
  const double peak_change = static_cast<double>(now->step_peak_bytes) - static_cast<double>(step_peak_bytes_);
  const double change = SecondsOf(*now) - seconds_;
  const bool peak_off = std::abs(peak_change) > thresholds_.peak_ratio * static_cast<double>(step_peak_bytes_);
  bool replay_off = std::abs(change) > thresholds_.replay_ratio * seconds_;
  if (replay_off) {
    const absl::StatusOr<StepPlan> best = PlanStep(problem);
    if (!best.ok()) return best.status();
    replay_off = SecondsOf(*now) - SecondsOf(*best) > thresholds_.gain_ratio * RecomputeSeconds(problem);
  }
  if (!peak_off && !replay_off) {
    off_in_a_row_ = 0;
    return ReplanReason();
  }
  if (++off_in_a_row_ < thresholds_.patience) return ReplanReason();
  if (peak_off) {
    return ReplanReason{ReplanCause::kPeak,
                        With(absl::StrFormat("the step peak of the plan in force is now predicted at %d bytes, %+.1f %%",
                                             now->step_peak_bytes, 100 * peak_change / static_cast<double>(step_peak_bytes_)),
                             digest_.LargestMemoryChange(ProblemDigest(problem)))};
  }
  return ReplanReason{ReplanCause::kCosts,
                      With(absl::StrFormat("the %s time of the plan in force is now predicted at %.6f s instead of %.6f s",
                                           now->moved_bytes > 0 ? "replay and move" : "replay", SecondsOf(*now), seconds_),
                           digest_.LargestCostChange(ProblemDigest(problem)))};
}

}  // namespace tidetape::planner
