// From what the ranks of a job measured to one planning problem: the worst rank's memory, the median rank's costs.
//
// Pure functions; safe to call from any thread.
#ifndef TIDETAPE_PLANNER_JOB_MERGE_RANKS_H_
#define TIDETAPE_PLANNER_JOB_MERGE_RANKS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/job/measurement.h"
#include "planner/model/problem.h"

namespace tidetape::planner {

// The newest that one rank measured. Both pointers are borrowed and not null.
struct RankMeasurement {
  int32_t rank = 0;
  const MemoryProfile* profile = nullptr;
  const CostsByHash* costs = nullptr;
};

// The agents' way to say a limit (-1: keep everything) as PlanningProblem::memory_limit_bytes.
int64_t LimitForPlanner(int64_t memory_limit_bytes);

// Puts newly measured costs over the known ones of the same tape; what `update` did not measure stays as it was.
void UpdateCosts(const TapeCosts& update, CostsByHash& known);

// Structure hashes that the profile names and `tapes` lacks, each once, in order of execution.
std::vector<uint64_t> MissingTapes(const MemoryProfile& profile, const TapesByHash& tapes);

// One problem for all ranks. Bases, transients, interval peaks and workspaces are the largest of any rank, headroom the least; an
// op's cost is the median over the ranks that measured it, or the tape's own where none did. Of an option the bytes are the largest
// of any rank, the seconds the median. The host has the least room and the slowest way of any rank, and an input may be moved where
// it may on all of them. `memory_limit_bytes` is the agents' (-1: everything).
//
// FailedPrecondition where a tape is missing or the ranks ran different blocks or brought different options; InvalidArgument where
// a measurement does not fit its tape. Messages name rank, block and op.
absl::StatusOr<PlanningProblem> MergeRanks(const TapesByHash& tapes, const std::vector<RankMeasurement>& ranks,
                                           int64_t memory_limit_bytes);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_JOB_MERGE_RANKS_H_
