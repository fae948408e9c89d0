#include "planner/step/movable.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/model/validate.h"

namespace tidetape::planner {
namespace {

// All subsets are looked at where they are no more than so many for each set that is asked for.
constexpr size_t kSubsetsASet = 16;
constexpr size_t kMostSubsets = 10;

MovedSet SetOf(const BlockTape& tape, std::vector<int32_t> storages) {
  MovedSet set{.storages = std::move(storages)};
  std::sort(set.storages.begin(), set.storages.end());
  for (int32_t s : set.storages) {
    set.bytes += tape.storages[s].bytes;
    if (tape.storages[s].kind == StorageKind::kBlockInput) set.input_bytes += tape.storages[s].bytes;
  }
  return set;
}

// By falling bytes.
std::vector<int32_t> Movables(const BlockTape& tape, const std::vector<int32_t>& held_inputs, const std::vector<int32_t>& saved) {
  std::vector<int32_t> movables;
  for (int32_t s : saved) {
    if (tape.storages[s].bytes > 0 && !tape.storages[s].held_anyway) movables.push_back(s);
  }
  for (int32_t s : held_inputs) {
    if (tape.storages[s].bytes > 0) movables.push_back(s);
  }
  std::stable_sort(movables.begin(), movables.end(),
                   [&](int32_t a, int32_t b) { return tape.storages[a].bytes > tape.storages[b].bytes; });
  return movables;
}

}  // namespace

int64_t HeldInputBytes(const BlockTape& tape, const BlockInstance& block) {
  int64_t bytes = 0;
  for (int32_t s : block.held_inputs) bytes += tape.storages[s].bytes;
  return bytes;
}

absl::StatusOr<MovedSet> MakeMovedSet(const BlockTape& tape, const BlockInstance& block, const std::vector<int32_t>& kept,
                                      std::vector<int32_t> storages) {
  for (int32_t s : storages) {
    if (s < 0 || static_cast<size_t>(s) >= tape.storages.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(BlockText(tape), ": the plan moves storage ", s, ", but the tape has ", tape.storages.size(), " storages"));
    }
    const Storage& storage = tape.storages[s];
    const bool is_kept = std::binary_search(kept.begin(), kept.end(), s) && !storage.held_anyway;
    if (is_kept || std::binary_search(block.held_inputs.begin(), block.held_inputs.end(), s)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(BlockText(tape), ": the plan moves ", StorageText(tape, s), ", which the block does not hold alone"));
  }
  std::sort(storages.begin(), storages.end());
  if (std::adjacent_find(storages.begin(), storages.end()) != storages.end()) {
    return absl::InvalidArgumentError(absl::StrCat(BlockText(tape), ": the plan moves a storage twice"));
  }
  return SetOf(tape, std::move(storages));
}

std::vector<MovedSet> MovedSets(const BlockTape& tape, const std::vector<int32_t>& held_inputs, const std::vector<int32_t>& saved,
                                size_t most) {
  const std::vector<int32_t> movables = Movables(tape, held_inputs, saved);
  std::map<int64_t, std::vector<int32_t>> by_bytes{{0, {}}};
  if (movables.size() <= kMostSubsets && size_t{1} << movables.size() <= kSubsetsASet * most) {
    for (uint32_t mask = 1; mask < 1u << movables.size(); ++mask) {
      std::vector<int32_t> storages;
      for (size_t i = 0; i < movables.size(); ++i) {
        if (mask >> i & 1) storages.push_back(movables[i]);
      }
      const int64_t bytes = SetOf(tape, storages).bytes;
      by_bytes.try_emplace(bytes, std::move(storages));
    }
  } else {
    std::vector<int32_t> largest;
    for (int32_t s : movables) {
      largest.push_back(s);
      by_bytes.try_emplace(SetOf(tape, largest).bytes, largest);
    }
  }
  std::vector<MovedSet> sets;
  const int64_t all = by_bytes.rbegin()->first, step = std::max<int64_t>(1, all / static_cast<int64_t>(most - 1));
  for (auto& [bytes, storages] : by_bytes) {
    const bool due = bytes >= step * static_cast<int64_t>(sets.size());
    if (by_bytes.size() <= most || due || bytes == all) sets.push_back(SetOf(tape, std::move(storages)));
  }
  return sets;
}

}  // namespace tidetape::planner
