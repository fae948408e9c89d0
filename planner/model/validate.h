// Checks of a planning problem before anything is computed from it.
//
// Everything behind these checks may rely on them: indices are in range, numbers are finite and not negative, and no sum of bytes
// or seconds that the planner forms overflows.
#ifndef TIDETAPE_PLANNER_MODEL_VALIDATE_H_
#define TIDETAPE_PLANNER_MODEL_VALIDATE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "planner/model/problem.h"

namespace tidetape::planner {

// Sums of bytes stay within this, so that differences of them cannot overflow.
inline constexpr int64_t kMostBytes = int64_t{1} << 61;

// A step's plan takes time in proportion to blocks x choices of a block, so that both are bounded.
inline constexpr size_t kMostBlocks = 1 << 14;
inline constexpr size_t kMostOptions = 1 << 10;

// InvalidArgument with the block, the op or storage, and the field. A tape without storages and ops is legal.
absl::Status ValidateTape(const BlockTape& tape);

// InvalidArgument likewise; checks the tapes too. Error texts name tapes by name and position.
absl::Status ValidateProblem(const PlanningProblem& problem);

// How error texts name things: "block 'model.layers.0'", "op 3 'aten::mm'", "storage 5 'aten::mm#0'".
std::string BlockText(const BlockTape& tape);
std::string OpText(const BlockTape& tape, int32_t op);
std::string StorageText(const BlockTape& tape, int32_t storage);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_MODEL_VALIDATE_H_
