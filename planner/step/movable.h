// Which values of a block a plan may move to the host, and which sets of them it considers.
#ifndef TIDETAPE_PLANNER_STEP_MOVABLE_H_
#define TIDETAPE_PLANNER_STEP_MOVABLE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/model/problem.h"

namespace tidetape::planner {

// A set of storages that moves.
struct MovedSet {
  std::vector<int32_t> storages;  // ascending
  int64_t bytes = 0;
  int64_t input_bytes = 0;  // of them, those of block inputs
};

// Bytes of the inputs that the execution alone holds, and that may be moved.
int64_t HeldInputBytes(const BlockTape& tape, const BlockInstance& block);

// The set of these storages. InvalidArgument, naming the storage, where one may not be moved by a plan that saves nothing but
// `kept` (ascending) beside it: an input that others hold, too, a parameter, or what is not kept or kept by others anyway.
absl::StatusOr<MovedSet> MakeMovedSet(const BlockTape& tape, const BlockInstance& block, const std::vector<int32_t>& kept,
                                      std::vector<int32_t> storages);

// Sets of held inputs (see BlockInstance) and of saved storages that cost bytes, each with another sum of bytes, by rising bytes:
// the empty one, the one of all, and others about evenly between, `most` in all (at least 2). All bytes cost the same to move, so
// that only the sum counts, and whether they are an input's does not. Of few storages all sums are considered; of many those of the
// largest first.
std::vector<MovedSet> MovedSets(const BlockTape& tape, const std::vector<int32_t>& held_inputs, const std::vector<int32_t>& saved,
                                size_t most);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_STEP_MOVABLE_H_
