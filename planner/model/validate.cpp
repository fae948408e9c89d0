#include "planner/model/validate.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tidetape::planner {
namespace {

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// Adds a value that is not negative; false where the sum exceeds kMostBytes.
bool AddTo(int64_t& sum, int64_t value) { return !__builtin_add_overflow(sum, value, &sum) && sum <= kMostBytes; }

// Where something is: a text, or what makes one. Large problems have millions of places and mostly no error.
const std::string& TextOf(const std::string& where) { return where; }
template <typename MakeText>
std::string TextOf(const MakeText& where) {
  return where();
}

template <typename Where>
absl::Status CheckBytes(const Where& where, const char* field, int64_t value) {
  if (value < 0) return Invalid(TextOf(where), ": ", field, " is ", value, ", must not be negative");
  return absl::OkStatus();
}

template <typename Where>
absl::Status CheckSeconds(const Where& where, const char* field, double value) {
  if (!std::isfinite(value) || value < 0) {
    return Invalid(TextOf(where), ": ", field, " is ", value, ", must be finite and not negative");
  }
  return absl::OkStatus();
}

template <typename Where>
absl::Status CheckIndices(const Where& where, const char* field, const std::vector<int32_t>& indices, size_t count) {
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] < 0 || static_cast<size_t>(indices[i]) >= count) {
      return Invalid(TextOf(where), ": ", field, "[", i, "] is ", indices[i], ", but the tape has ", count, " storages");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckStorages(const BlockTape& tape) {
  int64_t sum = 0;
  for (size_t s = 0; s < tape.storages.size(); ++s) {
    const Storage& storage = tape.storages[s];
    const auto where = [&] { return absl::StrCat(BlockText(tape), ", ", StorageText(tape, s)); };
    if (absl::Status status = CheckBytes(where, "bytes", storage.bytes); !status.ok()) return status;
    if (storage.must_save && storage.must_recompute && storage.kind == StorageKind::kIntermediate) {
      return Invalid(where(), ": must_save and must_recompute exclude each other");
    }
    if (storage.sampled_bytes.size() != tape.storages.front().sampled_bytes.size()) {
      return Invalid(where(), ": sampled_bytes has ", storage.sampled_bytes.size(),
                     " entries, but that of the tape's first storage has ", tape.storages.front().sampled_bytes.size());
    }
    for (int64_t bytes : storage.sampled_bytes) {
      if (absl::Status status = CheckBytes(where, "sampled_bytes", bytes); !status.ok()) return status;
    }
    if (!AddTo(sum, storage.bytes)) return Invalid(where(), ": bytes of the block's storages exceed 2^61 here");
  }
  return absl::OkStatus();
}

// Ops in program order: whatever an op reads was written before it. A cycle cannot be written down in program order, so it shows
// as an op that reads what only a later op writes.
absl::Status CheckOps(const BlockTape& tape) {
  std::vector<bool> written(tape.storages.size(), false);
  double seconds = 0;
  for (size_t i = 0; i < tape.ops.size(); ++i) {
    const Op& op = tape.ops[i];
    const auto where = [&] { return absl::StrCat(BlockText(tape), ", ", OpText(tape, i)); };
    if (absl::Status status = CheckSeconds(where, "cost_seconds", op.cost_seconds); !status.ok()) return status;
    if (absl::Status status = CheckBytes(where, "replay_workspace_bytes", op.replay_workspace_bytes); !status.ok()) return status;
    if (absl::Status status = CheckIndices(where, "reads", op.reads, tape.storages.size()); !status.ok()) return status;
    if (absl::Status status = CheckIndices(where, "writes", op.writes, tape.storages.size()); !status.ok()) return status;
    for (size_t r = 0; r < op.reads.size(); ++r) {
      const Storage& storage = tape.storages[op.reads[r]];
      // What must be saved may come from outside the tape.
      if (storage.kind != StorageKind::kIntermediate || storage.must_save || written[op.reads[r]]) continue;
      return Invalid(where(), ": reads[", r, "] is intermediate ", StorageText(tape, op.reads[r]),
                     ", which no earlier op writes; ops must come in program order without cycles");
    }
    for (int32_t s : op.writes) written[s] = true;
    seconds += op.cost_seconds;
    if (!std::isfinite(seconds)) return Invalid(where(), ": cost_seconds of the block's ops overflow here");
  }
  for (size_t i = 0; i < tape.consumed.size(); ++i) {
    const int32_t s = tape.consumed[i];
    const Storage& storage = tape.storages[s];
    if (storage.kind != StorageKind::kIntermediate || storage.must_save || written[s]) continue;
    return Invalid(BlockText(tape), ": consumed[", i, "] is intermediate ", StorageText(tape, s),
                   ", which no op writes; mark it must_save or make it a block input");
  }
  return absl::OkStatus();
}

absl::Status CheckConsumed(const BlockTape& tape) {
  if (absl::Status status = CheckIndices(BlockText(tape), "consumed", tape.consumed, tape.storages.size()); !status.ok())
    return status;
  std::vector<bool> seen(tape.storages.size(), false);
  for (size_t i = 0; i < tape.consumed.size(); ++i) {
    if (seen[tape.consumed[i]]) {
      return Invalid(BlockText(tape), ": consumed[", i, "] names ", StorageText(tape, tape.consumed[i]), " a second time");
    }
    seen[tape.consumed[i]] = true;
  }
  return absl::OkStatus();
}

// A plan names storages and so only their last versions.
absl::Status CheckValues(const BlockTape& tape) {
  if (tape.values.empty()) return absl::OkStatus();
  std::vector<int32_t> versions(tape.storages.size(), 0), last_writer(tape.storages.size(), -1);
  for (size_t i = 0; i < tape.ops.size(); ++i) {
    for (int32_t s : tape.ops[i].writes) {
      versions[s] += last_writer[s] != static_cast<int32_t>(i);
      last_writer[s] = static_cast<int32_t>(i);
    }
  }
  for (size_t i = 0; i < tape.values.size(); ++i) {
    const Value& value = tape.values[i];
    const std::string where = absl::StrCat(BlockText(tape), ", values[", i, "]");
    if (absl::Status status = CheckIndices(where, "storage", {value.storage}, tape.storages.size()); !status.ok()) return status;
    if (absl::Status status = CheckSeconds(where, "copy_seconds", value.copy_seconds); !status.ok()) return status;
    const int32_t last = versions[value.storage];
    if (value.version < 1 || value.version > last) {
      return Invalid(where, ": version is ", value.version, ", but ", StorageText(tape, value.storage), " has versions 1 to ",
                     last);
    }
    if (value.version < last) {
      return Invalid(where, ": backward reads version ", value.version, " of ", StorageText(tape, value.storage),
                     ", which a later op overwrites; a plan names last versions only: give the version a storage of its own that a "
                     "copying op writes");
    }
  }
  return absl::OkStatus();
}

// Live bytes of an interval may lie below the base on which the block stands, so negative ones are fine.
template <typename Where>
absl::Status CheckLive(const Where& where, const char* field, int64_t value) {
  if (value < -kMostBytes) return Invalid(TextOf(where), ": ", field, " is ", value, ", which is below -2^61");
  return absl::OkStatus();
}

absl::Status CheckEvents(const BlockTape& tape) {
  std::vector<bool> consumed(tape.storages.size(), false);
  std::vector<int32_t> released(tape.storages.size(), -1);
  for (int32_t s : tape.consumed) consumed[s] = true;
  for (size_t e = 0; e < tape.backward.size(); ++e) {
    const BackwardEvent& event = tape.backward[e];
    const auto where = [&] { return absl::StrCat(BlockText(tape), ", backward[", e, "]"); };
    if (absl::Status status = CheckIndices(where, "reads", event.reads, tape.storages.size()); !status.ok()) return status;
    if (absl::Status status = CheckIndices(where, "releases", event.releases, tape.storages.size()); !status.ok()) return status;
    if (absl::Status status = CheckLive(where, "gradient_live_bytes", event.gradient_live_bytes); !status.ok()) return status;
    if (absl::Status status = CheckLive(where, "start_live_bytes", event.start_live_bytes); !status.ok()) return status;
    for (size_t r = 0; r < event.reads.size(); ++r) {
      const int32_t s = event.reads[r];
      if (released[s] >= 0) {
        return Invalid(where(), ": reads[", r, "] is ", StorageText(tape, s), ", which backward[", released[s], "] released");
      }
      if (!consumed[s] && tape.storages[s].kind == StorageKind::kIntermediate) {
        return Invalid(where(), ": reads[", r, "] is ", StorageText(tape, s), ", which consumed does not list");
      }
    }
    for (int32_t s : event.releases) released[s] = static_cast<int32_t>(e);
  }
  return absl::OkStatus();
}

absl::Status CheckForwardSlack(const BlockTape& tape) {
  const auto where = [&] { return absl::StrCat(BlockText(tape), ", forward_slack_bytes"); };
  if (!tape.forward_slack_bytes.empty() && tape.forward_slack_bytes.size() != tape.ops.size()) {
    return Invalid(where(), " has ", tape.forward_slack_bytes.size(), " entries, but the tape has ", tape.ops.size(), " ops");
  }
  for (size_t i = 0; i < tape.forward_slack_bytes.size(); ++i) {
    const auto entry = [&] { return absl::StrCat(where(), ", ", OpText(tape, static_cast<int32_t>(i))); };
    if (absl::Status status = CheckBytes(entry, "bytes", tape.forward_slack_bytes[i]); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckLiveBytes(const std::string& where, const char* field, const std::vector<int64_t>& values, size_t events) {
  if (!values.empty() && values.size() != events) {
    return Invalid(where, ": ", field, " has ", values.size(), " entries, but the tape has ", events, " backward events");
  }
  for (size_t e = 0; e < values.size(); ++e) {
    if (absl::Status status = CheckLive(where, absl::StrCat(field, "[", e, "]").c_str(), values[e]); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckHeldInputs(const std::string& where, const BlockTape& tape, const std::vector<int32_t>& held_inputs) {
  if (absl::Status status = CheckIndices(where, "held_inputs", held_inputs, tape.storages.size()); !status.ok()) return status;
  for (size_t i = 0; i < held_inputs.size(); ++i) {
    if (tape.storages[held_inputs[i]].kind != StorageKind::kBlockInput) {
      return Invalid(where, ": held_inputs[", i, "] is ", StorageText(tape, held_inputs[i]), ", which is no block input");
    }
    if (i > 0 && held_inputs[i] <= held_inputs[i - 1]) {
      return Invalid(where, ": held_inputs[", i, "] is ", held_inputs[i], " after ", held_inputs[i - 1], "; they must ascend");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckInstance(const PlanningProblem& problem, size_t b) {
  const BlockInstance& block = problem.blocks[b];
  const std::string where = absl::StrCat("blocks[", b, "] '", block.name, "'");
  if (absl::Status status = CheckBytes(where, "forward_base_bytes", block.forward_base_bytes); !status.ok()) return status;
  if (absl::Status status = CheckBytes(where, "backward_base_bytes", block.backward_base_bytes); !status.ok()) return status;
  if (absl::Status status = CheckBytes(where, "backward_transient_bytes", block.backward_transient_bytes); !status.ok()) {
    return status;
  }
  if (block.options.size() > kMostOptions) {
    return Invalid(where, ": options has ", block.options.size(), " entries, the planner takes at most ", kMostOptions);
  }
  for (size_t o = 0; o < block.options.size(); ++o) {
    const BlockOption& option = block.options[o];
    const std::string at = absl::StrCat(where, ", options[", o, "]");
    if (absl::Status status = CheckBytes(at, "saved_bytes", option.saved_bytes); !status.ok()) return status;
    if (absl::Status status = CheckBytes(at, "own_peak_bytes", option.own_peak_bytes); !status.ok()) return status;
    if (absl::Status status = CheckSeconds(at, "seconds", option.seconds); !status.ok()) return status;
  }
  if (!block.options.empty()) return absl::OkStatus();
  if (block.tape < 0 || static_cast<size_t>(block.tape) >= problem.tapes.size()) {
    return Invalid(where, ": tape is ", block.tape, ", but the problem has ", problem.tapes.size(), " tapes");
  }
  const BlockTape& tape = problem.tapes[block.tape];
  if (absl::Status status = CheckHeldInputs(where, tape, block.held_inputs); !status.ok()) return status;
  const size_t events = tape.backward.size();
  if (absl::Status status = CheckLiveBytes(where, "gradient_live_bytes", block.gradient_live_bytes, events); !status.ok()) {
    return status;
  }
  return CheckLiveBytes(where, "start_live_bytes", block.start_live_bytes, events);
}

// Bytes that are held free are a part of those that they are held free in.
absl::Status CheckHeadroom(const PlanningProblem& problem) {
  const auto part = [](const std::string& where, const char* field, int64_t bytes, const char* whole, int64_t of) {
    if (absl::Status status = CheckBytes(where, field, bytes); !status.ok()) return status;
    if (bytes <= of) return absl::OkStatus();
    return Invalid(where, ": ", field, " is ", bytes, ", which is more than ", whole, " = ", of);
  };
  const auto& [block_bytes, head_bytes, optimizer_bytes] = problem.headroom;
  absl::Status status = part("headroom", "head_bytes", head_bytes, "head_peak_bytes", problem.head_peak_bytes);
  if (status.ok())
    status = part("headroom", "optimizer_bytes", optimizer_bytes, "optimizer_peak_bytes", problem.optimizer_peak_bytes);
  for (size_t b = 0; b < problem.blocks.size() && status.ok(); ++b) {
    const BlockInstance& block = problem.blocks[b];
    const std::string where = absl::StrCat("blocks[", b, "] '", block.name, "', headroom");
    status = part(where, "block_bytes", block_bytes, "forward_base_bytes", block.forward_base_bytes);
    if (status.ok()) status = part(where, "block_bytes", block_bytes, "backward_base_bytes", block.backward_base_bytes);
  }
  return status;
}

// Each block forward once and after that backward once.
absl::Status CheckSchedule(const PlanningProblem& problem) {
  std::vector<int> runs(problem.blocks.size(), 0);  // forward and backward so far
  for (size_t i = 0; i < problem.schedule.size(); ++i) {
    const ScheduledPart& part = problem.schedule[i];
    const std::string where = absl::StrCat("schedule[", i, "]");
    if (part.phase == Phase::kHead) continue;
    if (part.phase == Phase::kOptimizer) return Invalid(where, ": phase must be forward, head or backward");
    if (part.block < 0 || static_cast<size_t>(part.block) >= problem.blocks.size()) {
      return Invalid(where, ": block is ", part.block, ", but the problem has ", problem.blocks.size(), " blocks");
    }
    const bool backward = part.phase == Phase::kBackward;
    const std::string block = absl::StrCat("block ", part.block, " '", problem.blocks[part.block].name, "'");
    int& run = runs[part.block];
    if (run != (backward ? 1 : 0)) {
      return Invalid(where, ": ", block, " runs ", backward ? "backward" : "forward", " here, after it ran ",
                     run == 0   ? "not at all"
                     : run == 1 ? "forward"
                                : "backward");
    }
    ++run;
  }
  if (problem.schedule.empty()) return absl::OkStatus();
  for (size_t b = 0; b < runs.size(); ++b) {
    if (runs[b] == 2) continue;
    return Invalid("schedule: block ", b, " '", problem.blocks[b].name, "' never runs ", runs[b] == 0 ? "forward" : "backward");
  }
  return absl::OkStatus();
}

// The most that an execution of a tape adds to any sum. A valid tape's storages stay within kMostBytes.
struct TapeTotals {
  int64_t storage_bytes = 0;
  int64_t workspace_bytes = 0;
  int64_t live_bytes = 0;
  double seconds = 0;
};

TapeTotals TotalsOf(const BlockTape& tape) {
  TapeTotals totals;
  for (const Storage& storage : tape.storages) totals.storage_bytes += storage.bytes;
  for (const Op& op : tape.ops) {
    totals.workspace_bytes = std::max(totals.workspace_bytes, op.replay_workspace_bytes);
    totals.seconds += op.cost_seconds;
  }
  for (const BackwardEvent& event : tape.backward) {
    totals.live_bytes = std::max({totals.live_bytes, event.gradient_live_bytes, event.start_live_bytes});
  }
  return totals;
}

// All storages, the largest workspace and the largest live bytes of a block; false where the sum exceeds kMostBytes.
bool AddBlock(const BlockInstance& block, const std::vector<TapeTotals>& tapes, int64_t& bytes, double& seconds) {
  if (!block.options.empty()) {
    BlockOption most;
    for (const BlockOption& option : block.options) {
      most.saved_bytes = std::max(most.saved_bytes, option.saved_bytes);
      most.own_peak_bytes = std::max(most.own_peak_bytes, option.own_peak_bytes);
      most.seconds = std::max(most.seconds, option.seconds);
    }
    seconds += most.seconds;
    return AddTo(bytes, most.saved_bytes) && AddTo(bytes, most.own_peak_bytes);
  }
  const TapeTotals& tape = tapes[block.tape];
  seconds += tape.seconds;
  int64_t live = std::max(tape.live_bytes, block.backward_transient_bytes);
  for (int64_t own : block.gradient_live_bytes) live = std::max(live, own);
  for (int64_t own : block.start_live_bytes) live = std::max(live, own);
  return AddTo(bytes, tape.storage_bytes) && AddTo(bytes, tape.workspace_bytes) && AddTo(bytes, live);
}

absl::Status CheckStepSums(const PlanningProblem& problem) {
  std::vector<TapeTotals> tapes;
  for (const BlockTape& tape : problem.tapes) tapes.push_back(TotalsOf(tape));
  int64_t bytes = std::max(problem.head_peak_bytes, problem.optimizer_peak_bytes);
  for (const BlockInstance& block : problem.blocks) bytes = std::max({bytes, block.forward_base_bytes, block.backward_base_bytes});
  double seconds = 0;
  for (size_t b = 0; b < problem.blocks.size(); ++b) {
    const std::string where = absl::StrCat("blocks[", b, "] '", problem.blocks[b].name, "'");
    if (!AddBlock(problem.blocks[b], tapes, bytes, seconds)) return Invalid(where, ": bytes of the step exceed 2^61 here");
    if (!std::isfinite(seconds)) return Invalid(where, ": seconds of the step overflow here");
  }
  return absl::OkStatus();
}

std::string Quoted(const std::string& name) { return name.empty() ? "" : absl::StrCat(" '", name, "'"); }

}  // namespace

std::string BlockText(const BlockTape& tape) { return absl::StrCat("block '", tape.name, "'"); }

std::string OpText(const BlockTape& tape, int32_t op) { return absl::StrCat("op ", op, Quoted(tape.ops[op].name)); }

std::string StorageText(const BlockTape& tape, int32_t storage) {
  return absl::StrCat("storage ", storage, Quoted(tape.storages[storage].label));
}

absl::Status ValidateTape(const BlockTape& tape) {
  if (tape.storages.size() > INT32_MAX || tape.ops.size() > INT32_MAX) return Invalid(BlockText(tape), ": more than 2^31 entries");
  for (const auto& check : {CheckStorages, CheckConsumed, CheckOps, CheckValues, CheckEvents, CheckForwardSlack}) {
    if (absl::Status status = check(tape); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ValidateProblem(const PlanningProblem& problem) {
  const std::string where = "problem";
  if (absl::Status status = CheckBytes(where, "memory_limit_bytes", problem.memory_limit_bytes); !status.ok()) return status;
  if (absl::Status status = CheckBytes(where, "head_peak_bytes", problem.head_peak_bytes); !status.ok()) return status;
  if (absl::Status status = CheckBytes(where, "optimizer_peak_bytes", problem.optimizer_peak_bytes); !status.ok()) return status;
  if (absl::Status status = CheckBytes(where, "host_bytes_limit", problem.host_bytes_limit); !status.ok()) return status;
  if (absl::Status status = CheckSeconds(where, "host_bytes_per_second", problem.host_bytes_per_second); !status.ok())
    return status;
  for (size_t t = 0; t < problem.tapes.size(); ++t) {
    if (absl::Status status = ValidateTape(problem.tapes[t]); !status.ok()) {
      return Invalid("tapes[", t, "], ", status.message());
    }
  }
  if (problem.blocks.size() > kMostBlocks) {
    return Invalid("problem: blocks has ", problem.blocks.size(), " entries, the planner takes at most ", kMostBlocks);
  }
  for (size_t b = 0; b < problem.blocks.size(); ++b) {
    if (absl::Status status = CheckInstance(problem, b); !status.ok()) return status;
  }
  if (absl::Status status = CheckHeadroom(problem); !status.ok()) return status;
  if (absl::Status status = CheckSchedule(problem); !status.ok()) return status;
  return CheckStepSums(problem);
}

}  // namespace tidetape::planner
