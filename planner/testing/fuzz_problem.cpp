// libFuzzer's entry: whatever a problem file holds, reading and solving it ends soon, with a plan or a message.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "planner/io/problem_io.h"
#include "planner/planner.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidetape::planner;
  const auto problem = ParseProblem({reinterpret_cast<const char*>(data), size});
  if (!problem.ok()) {
    if (problem.status().message().empty()) std::abort();
    return 0;
  }
  const auto plan = PlanStepClosely(*problem, {.visits = 20'000});
  if (!plan.ok()) {
    if (plan.status().code() != absl::StatusCode::kInvalidArgument || plan.status().message().empty()) std::abort();
    return 0;
  }
  const bool limited = problem->memory_limit_bytes != 0 && problem->memory_limit_bytes != kUnlimitedBytes;
  if (plan->feasible && limited && plan->step_peak_bytes > problem->memory_limit_bytes) std::abort();
  if (plan->lower_bound_seconds > plan->replay_seconds) std::abort();
  const bool sampled = std::any_of(problem->tapes.begin(), problem->tapes.end(), [](const BlockTape& tape) {
    return !tape.storages.empty() && !tape.storages.front().sampled_bytes.empty();
  });
  if (!sampled && plan->expected_peak_bytes > plan->step_peak_bytes) std::abort();
  for (const BlockTape& tape : problem->tapes) {
    if (ParseProblem(PrintProblem(*problem)).ok() && BlockFrontier(tape).ok())
      FastestBlockPlan(tape, 1 << 20, {.visits = 20'000}).IgnoreError();
  }
  return 0;
}
