// Picks one choice a block under a limit on the step's peak.
//
// Blocks meet only in the sum of the bytes saved so far, and less of it is never worse, so a dynamic program over blocks with
// states (saved so far, seconds so far) is exact (see step_memory.h for the peak). States are kept in kBuckets buckets of saved
// bytes, the fastest in each, and the leanest of all; their bytes are never rounded, so every result keeps the limit. Where the
// bytes that may be saved are fewer than kBuckets the result is optimal; beyond, step_bound.h says how far it can be from the
// optimum.
#ifndef TIDETAPE_PLANNER_STEP_CHOICE_H_
#define TIDETAPE_PLANNER_STEP_CHOICE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/problem.h"
#include "planner/step_memory.h"

namespace tidetape::planner {

inline constexpr int64_t kBuckets = 1024;

// One way to run one block.
struct Choice {
  int64_t saved_bytes = 0;
  int64_t own_peak_bytes = 0;
  double seconds = 0;
  int32_t id = 0;  // the caller's
};

// Drops the choices that another one beats or equals in all three; the rest comes by rising bytes.
void KeepParetoChoices(std::vector<Choice>& choices);

struct LeastStep {
  StepPeak peak;
  std::vector<int32_t> picks;  // by block: position in its choices
};

// The least step peak that the choices (by block, by rising bytes) allow, what holds it there, and picks that reach it with the
// fewest bytes in each block in turn. Each block has at least one choice.
LeastStep FindLeastStep(const PlanningProblem& problem, const std::vector<std::vector<Choice>>& choices);

// By block: position of the pick in its choices, the fastest under the limit. Nullopt where no combination keeps it, which is
// exact. relaxed_bytes: by block, the bytes that it saves in the relaxation (StepBound).
std::optional<std::vector<int32_t>> PickChoices(const PlanningProblem& problem, const std::vector<std::vector<Choice>>& choices,
                                                int64_t limit, const std::vector<int64_t>& relaxed_bytes);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_STEP_CHOICE_H_
