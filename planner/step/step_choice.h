// Picks one choice a block under a limit on the step's peak.
//
// A quick way rounds the relaxation of step_bound.h. What that leaves above the bound is what any better plan may spend beyond the
// bound's prices, so that few choices are left to look at. Among them, blocks meet only in the sum of the bytes saved so far, and
// less of it is never worse, so a dynamic program over blocks with states (saved so far, seconds so far) is exact (see
// step_memory.h for the peak). States are kept in kBuckets buckets of saved bytes, the fastest in each, and the leanest of all;
// their bytes are never rounded, so every result keeps the limit. Where the bytes that may be saved are fewer than kBuckets the
// result is optimal; beyond, step_bound.h says how far it can be from the optimum.
//
// Own peaks are dear to find out and seldom decide, so that a choice may come with bounds on its own peak; it is found out where
// the bounds do not say whether the choice keeps the limit.
#ifndef TIDETAPE_PLANNER_STEP_STEP_CHOICE_H_
#define TIDETAPE_PLANNER_STEP_STEP_CHOICE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "planner/model/problem.h"
#include "planner/step/step_bound.h"
#include "planner/step/step_memory.h"

namespace tidetape::planner {

inline constexpr int64_t kBuckets = 1024;

// One way to run one block.
struct Choice {
  int64_t saved_bytes = 0;
  int64_t own_peak_bytes = 0;
  double seconds = 0;
  int32_t id = 0;  // the caller's
  // The own peak lies at most this much below own_peak_bytes, and not above; 0: it is known.
  int64_t doubt_bytes = 0;
};

using Choices = std::vector<std::vector<Choice>>;  // by block, each by rising bytes

// Finds out the own peak of a block's choice: own_peak_bytes is right afterwards, and doubt_bytes 0.
using LearnOwnPeak = std::function<void(size_t block, Choice& choice)>;

// Drops the choices that another one is known to beat or equal in all three; the rest comes by rising bytes.
void KeepParetoChoices(std::vector<Choice>& choices);

struct LeastStep {
  StepPeak peak;
  std::vector<int32_t> picks;  // by block: position in its choices
};

// The least step peak that the choices allow, what holds it there, and picks that reach it with the fewest bytes in each block in
// turn. Each block has at least one choice.
LeastStep FindLeastStep(const PlanningProblem& problem, Choices& choices, const LearnOwnPeak& learn);

// By block: position of the pick in its choices, so that the step keeps the limit: the relaxation rounded, then exchanged block by
// block as long as that is faster. Nullopt where no combination keeps the limit, which is exact.
std::optional<std::vector<int32_t>> QuickPicks(const PlanningProblem& problem, Choices& choices, int64_t limit,
                                               const StepBound& relaxation, const LearnOwnPeak& learn);

// The fastest picks of less than `most_seconds` by the dynamic program. Nullopt where it finds none.
std::optional<std::vector<int32_t>> BestPicks(const PlanningProblem& problem, Choices& choices, int64_t limit,
                                              const StepBound& relaxation, double most_seconds, const LearnOwnPeak& learn);

// Each for itself, as far as own peaks are known.
std::vector<BlockLeast> LeastOf(const Choices& choices);

// Of the picked choices.
std::vector<BlockMemory> MemoryOf(const Choices& choices, const std::vector<int32_t>& picks);
double SecondsOf(const Choices& choices, const std::vector<int32_t>& picks);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_STEP_STEP_CHOICE_H_
