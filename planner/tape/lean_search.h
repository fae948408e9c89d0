// Looks for plans of one tape with a low own peak, which lie off the hull of bytes and seconds.
//
// A small tensor saved in the middle of a block lets its second half replay without the first: the peak falls, while seconds may
// not. A local search: no bound on how far from the best its plans are.
#ifndef TIDETAPE_PLANNER_TAPE_LEAN_SEARCH_H_
#define TIDETAPE_PLANNER_TAPE_LEAN_SEARCH_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace tidetape::planner {

// What a set of saved storages (ascending) means; nothing where no agent could follow it.
struct LeanPoint {
  int64_t saved_bytes = 0;
  int64_t own_peak_bytes = 0;
};
using EvaluateSaved = std::function<std::optional<LeanPoint>(const std::vector<int32_t>& saved)>;

// Adds one candidate after the other to `saved`, each time the one that lowers the own peak most for its bytes, until none does.
// Returns each set on the way. At most `evaluations` calls of `evaluate`.
std::vector<std::vector<int32_t>> AddWhatLowersThePeak(std::vector<int32_t> saved, const std::vector<int32_t>& candidates,
                                                       int64_t evaluations, const EvaluateSaved& evaluate);

// Takes storages out of `saved`, each where the own peak does not rise, those of `by_falling_bytes` in their order.
std::vector<int32_t> DropWhatDoesNotLowerThePeak(std::vector<int32_t> saved, const std::vector<int32_t>& by_falling_bytes,
                                                 int64_t evaluations, const EvaluateSaved& evaluate);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_TAPE_LEAN_SEARCH_H_
