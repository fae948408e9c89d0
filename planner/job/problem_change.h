// What differs most between two measurements of one job, in words.
//
// Pure functions of the planner's structs; safe to call from any thread.
#ifndef TIDETAPE_PLANNER_JOB_PROBLEM_CHANGE_H_
#define TIDETAPE_PLANNER_JOB_PROBLEM_CHANGE_H_

#include <cstdint>
#include <map>
#include <string>

#include "planner/model/problem.h"

namespace tidetape::planner {

// The figures of a problem that decide its peaks and its replay times, without its tapes.
class ProblemDigest {
 public:
  ProblemDigest() = default;
  explicit ProblemDigest(const PlanningProblem& problem);

  // The base that moved farthest, as in "the backward base of layers.7 went from 1000 to 1200 bytes"; empty where none did.
  std::string LargestMemoryChange(const ProblemDigest& now) const;

  // The ops or options whose cost moved farthest, over all blocks, as in "aten::mm takes 0.012 s a step instead of 0.008 s"; empty
  // where none did.
  std::string LargestCostChange(const ProblemDigest& now) const;

 private:
  std::map<std::string, int64_t> bases_;   // by what they are of
  std::map<std::string, double> seconds_;  // by op or option, of running each once in every block
};

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_JOB_PROBLEM_CHANGE_H_
