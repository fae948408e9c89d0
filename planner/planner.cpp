#include "planner/planner.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "planner/model/validate.h"
#include "planner/step/step_planner.h"
#include "planner/tape/block_search.h"
#include "planner/tape/frontier.h"
#include "planner/tape/tape_plans.h"

namespace tidetape::planner {
namespace {

// Limits at which StepFrontier looks for plans, between the least peak and that of keeping everything.
constexpr int64_t kFrontierLimits = 48;

// Ops that BlockFrontier visits at most to evaluate corners: some twenty seconds. All corners of tapes of ten thousand ops.
constexpr size_t kFrontierVisits = 200'000'000;
constexpr size_t kFewestCorners = 64;

}  // namespace

absl::StatusOr<StepPlan> PlanStep(const PlanningProblem& problem) { return PlanStepClosely(problem, {.visits = kPlanVisits}); }

absl::StatusOr<StepPlan> PlanStepClosely(const PlanningProblem& problem, const Effort& effort) {
  auto planner = StepPlanner::Create(problem);
  if (!planner.ok()) return planner.status();
  return (*planner)->PlanClosely(problem.memory_limit_bytes, effort);
}

absl::StatusOr<StepPlan> EvaluatePlan(const PlanningProblem& problem, const std::vector<std::vector<int32_t>>& saved,
                                      const std::vector<std::vector<int32_t>>& moved) {
  auto planner = StepPlanner::Create(problem);
  if (!planner.ok()) return planner.status();
  return (*planner)->Evaluate(saved, moved, problem.memory_limit_bytes);
}

absl::StatusOr<std::vector<FrontierPoint>> BlockFrontier(const BlockTape& tape) {
  if (absl::Status status = ValidateTape(tape); !status.ok()) return status;
  auto plans = TapePlans::Create(tape);
  if (!plans.ok()) return plans.status();
  const std::vector<Frontier::Vertex>& vertices = (*plans)->vertices();
  const size_t corners =
      std::clamp(kFrontierVisits / (tape.ops.size() + 1), kFewestCorners, std::max(kFewestCorners, vertices.size()));
  std::vector<HullPoint> hull;
  for (int32_t v : SpreadOver(vertices, 0, static_cast<int32_t>(vertices.size()) - 1, static_cast<int32_t>(corners))) {
    const TapePlan& plan = (*plans)->AtVertex(v);
    hull.push_back({plan.saved_bytes, plan.replay_seconds, v});
  }
  // Where the cut is not exact, its plans may cost less than it says.
  hull = LowerHull(std::move(hull));
  std::vector<FrontierPoint> points;
  points.reserve(hull.size());
  for (const HullPoint& point : hull) points.push_back({point.bytes, point.seconds, (*plans)->AtVertex(point.vertex).saved});
  return points;
}

absl::StatusOr<BoundedPoint> FastestBlockPlan(const BlockTape& tape, int64_t saved_bytes_limit, const Effort& effort) {
  const auto hull = BlockFrontier(tape);
  if (!hull.ok()) return hull.status();
  const double gap = effort.gap_of_full_replay * hull->back().replay_seconds;
  auto fastest = SearchBlock(tape, saved_bytes_limit, gap, effort);
  if (!fastest.ok()) return fastest.status();
  return BoundedPoint{{fastest->plan.saved_bytes, fastest->plan.replay_seconds, std::move(fastest->plan.saved)},
                      fastest->bound_seconds};
}

absl::StatusOr<std::vector<FrontierPoint>> StepFrontier(const PlanningProblem& problem) {
  auto planner = StepPlanner::Create(problem);
  if (!planner.ok()) return planner.status();
  const int64_t least = (*planner)->least_peak_bytes();
  std::vector<FrontierPoint> found;
  const auto add = [&](int64_t limit) {
    const StepPlan plan = (*planner)->Plan(limit);
    found.push_back({plan.step_peak_bytes, SecondsOf(plan), {}});
  };
  add(kUnlimitedBytes);
  const int64_t step = (found[0].bytes - least) / kFrontierLimits;
  for (int64_t i = 0; i <= kFrontierLimits; ++i) add(least + step * i);

  std::sort(found.begin(), found.end(), [](const FrontierPoint& a, const FrontierPoint& b) {
    return a.replay_seconds != b.replay_seconds ? a.replay_seconds < b.replay_seconds : a.bytes < b.bytes;
  });
  std::vector<FrontierPoint> points;
  for (const FrontierPoint& point : found) {
    if (points.empty() || point.bytes < points.back().bytes) points.push_back(point);
  }
  return points;
}

}  // namespace tidetape::planner
