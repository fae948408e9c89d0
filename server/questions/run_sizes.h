// The sizes of runs of the same blocks: which dimension of their tensors differs, and what people call it.
//
// Pure functions; safe to call from any thread.
#ifndef TIDETAPE_SERVER_QUESTIONS_RUN_SIZES_H_
#define TIDETAPE_SERVER_QUESTIONS_RUN_SIZES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planner/model/problem.h"

namespace tidetape::server {

// What an op of the first block makes that has two dimensions or more, as its label tells: [batch, sequence, width], or [rows,
// width] where batch and sequence are one. Empty where no label has a shape.
std::vector<int64_t> LeadingShape(const planner::PlanningProblem& problem);

// "batch", "sequence" or "rows"; empty for a dimension that is no size of a step.
std::string AxisName(const std::vector<int64_t>& shape, size_t dimension);

// Batch times sequence, or rows.
int64_t Tokens(const std::vector<int64_t>& shape);

// The dimensions in which two shapes differ; all of them where they are not of the same number.
std::vector<size_t> Differences(const std::vector<int64_t>& a, const std::vector<int64_t>& b);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_QUESTIONS_RUN_SIZES_H_
