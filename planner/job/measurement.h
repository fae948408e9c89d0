// What ranks measure, as plain structs: the planner's side of the messages MemoryProfile and TapeCosts.
//
// Bytes are requested bytes, times are seconds.
#ifndef TIDETAPE_PLANNER_JOB_MEASUREMENT_H_
#define TIDETAPE_PLANNER_JOB_MEASUREMENT_H_

#include <cstdint>
#include <map>
#include <vector>

#include "planner/model/problem.h"

namespace tidetape::planner {

// One execution of a block in a measured step. The instance's tape index is not used: the hash names the tape.
struct ProfiledBlock {
  uint64_t structure_hash = 0;
  BlockInstance instance;
  // Sites of the inputs that nobody else holds; the instance's own list is not used either.
  std::vector<uint64_t> held_inputs;
};

// Memory through one step, saved and replayed bytes taken off.
struct MemoryProfile {
  std::vector<ProfiledBlock> blocks;  // in order of execution
  int64_t head_peak_bytes = 0;
  int64_t optimizer_peak_bytes = 0;
  int64_t host_bytes_limit = 0;         // host memory for moved values; 0: nothing is moved
  double host_bytes_per_second = 0;     // there or back, as measured
  std::vector<ScheduledPart> schedule;  // PlanningProblem::schedule
  Headroom headroom;
  bool steady = false;  // the optimizer's state existed, so that bases are those of a steady step, and steps were enough to plan by
  bool early = false;   // the optimizer's state existed, but steps were few: they can confirm an earlier run
};

// Costs of one tape as measured since it was recorded. Both lists have one entry an op of the tape.
struct TapeCosts {
  uint64_t structure_hash = 0;
  std::vector<double> cost_seconds;  // negative: not measured
  std::vector<int64_t> replay_workspace_bytes;
};

using TapesByHash = std::map<uint64_t, BlockTape>;
using CostsByHash = std::map<uint64_t, TapeCosts>;

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_JOB_MEASUREMENT_H_
