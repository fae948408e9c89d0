#include "planner/replay_set.h"

#include "absl/strings/str_cat.h"
#include "planner/validate.h"

namespace tidetape::planner {
namespace {

template <typename... Parts>
absl::Status Invalid(const TapeIndex& index, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(BlockText(index.tape()), ": ", parts...));
}

absl::Status MarkSaved(const TapeIndex& index, const std::vector<int32_t>& saved, ReplaySet& set) {
  const BlockTape& tape = index.tape();
  for (int32_t s : saved) {
    if (s < 0 || static_cast<size_t>(s) >= tape.storages.size()) {
      return Invalid(index, "the plan saves storage ", s, ", but the tape has ", tape.storages.size(), " storages");
    }
    if (!index.intermediate(s)) return Invalid(index, "the plan saves ", StorageText(tape, s), ", which is always there");
    if (tape.storages[s].must_recompute)
      return Invalid(index, "the plan saves ", StorageText(tape, s), ", which is must_recompute");
    if (set.saved[s]) return Invalid(index, "the plan saves ", StorageText(tape, s), " twice");
    set.saved[s] = true;
    set.saved_bytes += index.save_bytes(s);
  }
  for (size_t s = 0; s < tape.storages.size(); ++s) {
    if (index.intermediate(s) && tape.storages[s].must_save && !set.saved[s]) {
      return Invalid(index, "the plan does not save ", StorageText(tape, s), ", which is must_save");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOp(const TapeIndex& index, const ReplaySet& set, int32_t op) {
  const BlockTape& tape = index.tape();
  if (index.bar(op) != ReplayBar::kNone) {
    return Invalid(index, "the plan needs ", OpText(tape, op), ", which ", TapeIndex::BarText(index.bar(op)));
  }
  for (const OpInput& input : index.inputs(op)) {
    if (set.saved[input.storage] && !input.last) {
      return Invalid(index, "the plan saves ", StorageText(tape, input.storage), " and replays ", OpText(tape, op),
                     ", which stands on an earlier version of it");
    }
  }
  for (int32_t s : index.outputs(op)) {
    if (set.saved[s] && index.rewritten(s)) {
      return Invalid(index, "the plan saves ", StorageText(tape, s), " and replays ", OpText(tape, op),
                     ", one of its several writers");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ReplaySet> FindReplaySet(const TapeIndex& index, const std::vector<int32_t>& saved) {
  const BlockTape& tape = index.tape();
  ReplaySet set{.saved = std::vector<bool>(tape.storages.size()), .replayed = std::vector<bool>(tape.ops.size())};
  if (absl::Status status = MarkSaved(index, saved, set); !status.ok()) return status;

  std::vector<int32_t> stack;
  const auto need = [&](int32_t op) {
    if (set.replayed[op]) return;
    set.replayed[op] = true;
    stack.push_back(op);
  };
  for (int32_t s : tape.consumed) {
    if (index.consumed(s) && !set.saved[s]) need(index.last_writer(s));
  }
  while (!stack.empty()) {
    const int32_t op = stack.back();
    stack.pop_back();
    if (absl::Status status = CheckOp(index, set, op); !status.ok()) return status;
    for (const OpInput& input : index.inputs(op)) {
      if (!(input.last && set.saved[input.storage])) need(input.producer);
    }
  }
  // Summed in program order, so that equal plans have equal seconds to the bit.
  for (size_t i = 0; i < tape.ops.size(); ++i) {
    if (set.replayed[i]) set.replay_seconds += tape.ops[i].cost_seconds;
  }
  return set;
}

std::vector<int32_t> Positions(const std::vector<bool>& set) {
  std::vector<int32_t> positions;
  for (size_t i = 0; i < set.size(); ++i) {
    if (set[i]) positions.push_back(static_cast<int32_t>(i));
  }
  return positions;
}

}  // namespace tidetape::planner
