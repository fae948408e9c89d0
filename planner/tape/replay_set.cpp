#include "planner/tape/replay_set.h"

#include "absl/strings/str_cat.h"
#include "planner/model/validate.h"

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
  for (int32_t s : index.must_save()) {
    if (!set.saved[s]) return Invalid(index, "the plan does not save ", StorageText(tape, s), ", which is must_save");
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
  ReplaySet set{.saved = Flags(tape.storages.size()), .replayed = Flags(tape.ops.size())};
  if (absl::Status status = MarkSaved(index, saved, set); !status.ok()) return status;

  for (int32_t s : tape.consumed) {
    if (index.consumed(s) && !set.saved[s]) set.replayed[index.last_writer(s)] = true;
  }
  // Producers come before their readers.
  const int32_t ops = static_cast<int32_t>(tape.ops.size());
  for (int32_t op = ops - 1; op >= 0; --op) {
    if (!set.replayed[op]) continue;
    if (absl::Status status = CheckOp(index, set, op); !status.ok()) return status;
    for (const OpInput& input : index.inputs(op)) {
      if (!(input.last && set.saved[input.storage])) set.replayed[input.producer] = true;
    }
  }
  // Summed in program order, so that equal plans have equal seconds to the bit.
  for (int32_t op = 0; op < ops; ++op) {
    if (set.replayed[op]) set.replay_seconds += index.cost_seconds(op);
  }
  return set;
}

std::vector<int32_t> Positions(const Flags& set) {
  std::vector<int32_t> positions;
  for (size_t i = 0; i < set.size(); ++i) {
    if (set[i]) positions.push_back(static_cast<int32_t>(i));
  }
  return positions;
}

}  // namespace tidetape::planner
