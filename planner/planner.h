// The planner's front: a problem in, a step's plan out.
//
// Pure functions: no clock, no threads, no torch, no gRPC. Safe to call from any thread. Every function validates its input and
// returns InvalidArgument with a message that names the field, the block and the op.
#ifndef TIDETAPE_PLANNER_PLANNER_H_
#define TIDETAPE_PLANNER_PLANNER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/model/plan.h"
#include "planner/model/problem.h"

namespace tidetape::planner {

// The effort of a plan that nobody asks to be closer: about a tenth of a second. Near the least peak it makes replays up to a third
// shorter.
inline constexpr int64_t kPlanVisits = 500'000;

// The fastest plan under problem.memory_limit_bytes, as far as kPlanVisits find it. An infeasible limit is not an error: see
// StepPlan::feasible.
absl::StatusOr<StepPlan> PlanStep(const PlanningProblem& problem);

// The same with so much effort on the gap between plan and bound; without any, the best of some corners of the tapes' hulls.
absl::StatusOr<StepPlan> PlanStepClosely(const PlanningProblem& problem, const Effort& effort);

// The lower hull of one tape, by falling bytes and rising time. Of a tape of more than ten thousand ops with very many corners
// those at even distances of bytes.
absl::StatusOr<std::vector<FrontierPoint>> BlockFrontier(const BlockTape& tape);

// The fastest plan of one tape that saves at most so many bytes, which may lie between the corners of its frontier.
// InvalidArgument where no plan does.
absl::StatusOr<BoundedPoint> FastestBlockPlan(const BlockTape& tape, int64_t saved_bytes_limit, const Effort& effort);

// The step's time against its peak, from everything kept to the least peak, by falling bytes and rising time.
absl::StatusOr<std::vector<FrontierPoint>> StepFrontier(const PlanningProblem& problem);

// The plan of the step with the given storages saved in each block (one list an entry of problem.blocks), and others moved to the
// host (likewise; or no list at all), evaluated: replayed ops, bytes, seconds and the step's peak. For questions about plans that
// the planner did not choose. Not feasible where more is moved than the host has room for.
absl::StatusOr<StepPlan> EvaluatePlan(const PlanningProblem& problem, const std::vector<std::vector<int32_t>>& saved,
                                      const std::vector<std::vector<int32_t>>& moved = {});

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_PLANNER_H_
