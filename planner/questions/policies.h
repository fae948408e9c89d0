// What common ways to choose saved tensors would give on the same problem: to compare with, and to answer "what if".
#ifndef TIDETAPE_PLANNER_QUESTIONS_POLICIES_H_
#define TIDETAPE_PLANNER_QUESTIONS_POLICIES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/model/plan.h"
#include "planner/model/problem.h"

namespace tidetape::planner {

class StepPlanner;

enum class Policy {
  kFullCheckpoint,    // every block saves as little as it can
  kEveryOtherBlock,   // blocks 0, 2, 4, ... save as little as they can, the others all that backward reads
  kKeepMatmuls,       // saves what matrix products and attention make, and nothing else
  kBytesOnlyBudget,   // each block saves what backward reads, the smallest first, up to a share of its bytes
  kAdditiveKnapsack,  // the same with the most seconds of the storage's own op a byte first, as if ops did not depend on each other
};

inline constexpr Policy kPolicies[] = {Policy::kFullCheckpoint, Policy::kEveryOtherBlock, Policy::kKeepMatmuls,
                                       Policy::kBytesOnlyBudget, Policy::kAdditiveKnapsack};

// As in "full checkpoint".
std::string PolicyName(Policy policy);

// The op is a matrix product, a convolution or attention, by its name.
bool IsMatmul(const Op& op);

// The policy's plan of the step, evaluated. Policies with a budget take the largest one that keeps problem.memory_limit_bytes, the
// others are the same under every limit; see StepPlan::feasible. What a tape does not let be saved is replayed, and what it does
// not let be replayed is saved. Blocks with options take the one with the fewest bytes, or the fastest where the policy keeps all.
// InvalidArgument as of PlanStep.
absl::StatusOr<StepPlan> PlanByPolicy(const PlanningProblem& problem, Policy policy);
// The same with a planner of the problem that is there already; its limit may have changed since.
absl::StatusOr<StepPlan> PlanByPolicy(StepPlanner& planner, const PlanningProblem& problem, Policy policy);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_QUESTIONS_POLICIES_H_
