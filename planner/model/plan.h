// Plans as plain structs: what the planner answers, in its own words.
#ifndef TIDETAPE_PLANNER_MODEL_PLAN_H_
#define TIDETAPE_PLANNER_MODEL_PLAN_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "planner/model/phase.h"

namespace tidetape::planner {

// A limit that no step reaches: the plan keeps everything that autograd reads.
inline constexpr int64_t kUnlimitedBytes = INT64_MAX;

// What holds a peak.
struct PeakHolder {
  Phase phase = Phase::kOptimizer;
  int32_t block = -1;  // PlanningProblem::blocks, for kForward and kBackward
};

// What one block execution keeps and replays.
struct BlockPlan {
  std::vector<int32_t> saved;     // storages, ascending
  std::vector<int32_t> replayed;  // ops, ascending
  std::vector<int32_t> moved;     // storages moved to the host and back, ascending; not among the saved ones
  int64_t saved_bytes = 0;
  int64_t moved_bytes = 0;
  int64_t moved_input_bytes = 0;  // of them, those of block inputs, which the measured bases count
  double replay_seconds = 0;
  double move_seconds = 0;
  int64_t own_peak_bytes = 0;  // above the backward base
  int32_t option = -1;         // where the block brought options
};

struct StepPlan {
  std::vector<BlockPlan> blocks;    // one an entry of PlanningProblem::blocks
  int64_t step_peak_bytes = 0;      // headroom included
  int64_t expected_peak_bytes = 0;  // without it: what training is to measure
  PeakHolder peak_holder;
  int64_t saved_bytes = 0;
  int64_t moved_bytes = 0;
  double replay_seconds = 0;
  double move_seconds = 0;
  double lower_bound_seconds = 0;  // no plan of the problem under the limit costs less, replay and moves together
  double gap_ratio = 0;            // (cost - bound) / bound; 0 where both are 0, infinity where only the bound is 0
  bool feasible = true;            // false: even the least-memory plan, which this then is, exceeds the limit
  int64_t least_peak_bytes = 0;    // the least step peak that the planner can reach, and what holds it there
  PeakHolder least_peak_holder;
};

// What the plan costs: replay and moves.
inline double SecondsOf(const BlockPlan& plan) { return plan.replay_seconds + plan.move_seconds; }
inline double SecondsOf(const StepPlan& plan) { return plan.replay_seconds + plan.move_seconds; }

// What may be spent on closing the gap between a plan and its bound.
struct Effort {
  int64_t visits = 0;                // of an op, about; some ten million a second
  double gap_of_full_replay = 3e-4;  // a gap that is close enough, as a share of the seconds of replaying everything
  // Asked every few thousand visits: true ends the search, and the best so far is taken. For deadlines; empty: only visits count.
  std::function<bool()> stop;

  bool Stopped() const { return stop != nullptr && stop(); }
};

struct FrontierPoint {
  int64_t bytes = 0;           // saved bytes of a block, or peak bytes of a step
  double replay_seconds = 0;   // of a step: its moves included
  std::vector<int32_t> saved;  // storages; empty for a step
};

struct BoundedPoint {
  FrontierPoint point;
  double lower_bound_seconds = 0;  // no plan of the block within the bytes is faster
};

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_MODEL_PLAN_H_
