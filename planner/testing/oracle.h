// Slow and simple versions of what the planner computes, sharing no code with it, for tests.
#ifndef TIDETAPE_PLANNER_TESTING_ORACLE_H_
#define TIDETAPE_PLANNER_TESTING_ORACLE_H_

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "planner/model/problem.h"

namespace tidetape::planner {

struct OraclePlan {
  std::vector<int32_t> saved;
  std::set<int32_t> replayed;
  int64_t bytes = 0;
  double seconds = 0;
};

// The plan with these storages saved; nullopt where it breaks a rule of replay_set.h.
std::optional<OraclePlan> OracleEvaluate(const BlockTape& tape, const std::vector<int32_t>& saved);

// Every plan of a tape, by trying all subsets of its intermediates.
std::vector<OraclePlan> AllPlans(const BlockTape& tape);

// The plan of `tape` follows the decisions of a region: what `region`, a copy of the tape, marks as must_save or must_recompute
// beyond the tape's own marks.
bool IsInRegion(const OraclePlan& plan, const BlockTape& region, const BlockTape& tape);

// The own peak of a plan on an instance, by walking through backward with the content (version) of each storage written down. Fails
// the current test where an op or backward meets a content other than the recorded one.
int64_t OracleOwnPeak(const BlockTape& tape, const BlockInstance& instance, const OraclePlan& plan);

// The peak formula of the step.
int64_t OracleStepPeak(const PlanningProblem& problem, const std::vector<int64_t>& saved, const std::vector<int64_t>& own_peaks);

// The same where blocks also move bytes to the host, by walking through the step with what each block has on the device written
// down. `saved` are the bytes that stay, less those of moved inputs, which the bases count.
int64_t OracleMovingStepPeak(const PlanningProblem& problem, const std::vector<int64_t>& saved, const std::vector<int64_t>& moved,
                             const std::vector<int64_t>& own_peaks);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_TESTING_ORACLE_H_
