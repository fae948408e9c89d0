// Runs that outlive their jobs: how they are named, and how what one knew goes into a new measurement.
//
// Pure functions; safe to call from any thread.
#ifndef TIDETAPE_SERVER_JOB_KNOWN_RUNS_H_
#define TIDETAPE_SERVER_JOB_KNOWN_RUNS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "planner/model/problem.h"
#include "server/store/store.h"

namespace tidetape::server {

// The name of a run. `structure_hashes` has one entry a block. The same on every machine and in every version of the server:
// whatever changes it makes all stored runs unknown.
KnownRunKey KeyOfRun(const planner::PlanningProblem& problem, const std::vector<uint64_t>& structure_hashes,
                     const std::string& device, const std::string& torch_version);

// Raises what few steps have measured to what an earlier run of the same key knew, so that no plan is looser than either allows:
// bases, peaks and workspaces become the larger ones, what one of them must save or cannot replay stays so, and costs are the
// earlier run's. FailedPrecondition, and `problem` as it was, where the two are not of the same blocks.
absl::Status RaiseToKnown(const planner::PlanningProblem& known, planner::PlanningProblem& problem);

// Adds bytes to all bases and peaks, as if each rank held so much more for reasons of its own.
void AddToBases(int64_t bytes, planner::PlanningProblem& problem);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_JOB_KNOWN_RUNS_H_
