#include "agent/link/tape_codec.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tidetape::link {
namespace {

constexpr size_t kLongestName = 256;

std::string Text(const char* text) { return text == nullptr ? "" : text; }

// Checks fields and keeps the first complaint. Field names are put together only where there is one.
class Checker {
 public:
  explicit Checker(std::string where) : where_(std::move(where)) {}

  template <typename... Field>
  void Bytes(int64_t value, const Field&... field) {
    if (ok() && value < 0) Complain(absl::StrCat(field..., " = ", value, " must not be negative"));
  }

  template <typename... Field>
  void NotNegative(double value, const Field&... field) {
    if (ok() && !(std::isfinite(value) && value >= 0)) {
      Complain(absl::StrCat(field..., " = ", value, " must be finite and not negative"));
    }
  }

  template <typename... Field>
  void Seconds(double value, const Field&... field) {
    NotNegative(value, field...);
  }

  template <typename... Field>
  void Finite(double value, const Field&... field) {
    if (ok() && !std::isfinite(value)) Complain(absl::StrCat(field..., " = ", value, " must be finite"));
  }

  // False where there is nothing to read.
  template <typename... Field>
  bool List(const void* data, size_t size, const Field&... field) {
    if (ok() && data == nullptr && size > 0) Complain(absl::StrCat(field..., " is null and has ", size, " entries"));
    return ok() && size > 0;
  }

  void Name(const std::string& name, absl::string_view field) {
    const bool printable = std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 127; });
    Require(!name.empty() && name.size() <= kLongestName && printable,
            absl::StrCat(field, " must have 1 to ", kLongestName, " printable ASCII characters and no spaces"));
  }

  void Require(bool condition, absl::string_view complaint) {
    if (ok() && !condition) Complain(complaint);
  }

  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }

 private:
  void Complain(absl::string_view complaint) { status_ = absl::InvalidArgumentError(absl::StrCat(where_, ": ", complaint)); }

  const std::string where_;
  absl::Status status_;
};

template <typename... Field>
std::vector<int32_t> Indices(const tt_indices& indices, Checker& check, const Field&... field) {
  if (!check.List(indices.data, indices.size, field...)) return {};
  return std::vector<int32_t>(indices.data, indices.data + indices.size);
}

template <typename... Field>
std::vector<int64_t> ByteList(const int64_t* data, size_t size, Checker& check, const Field&... field) {
  if (!check.List(data, size, field...)) return {};
  for (size_t i = 0; i < size; ++i) check.Bytes(data[i], field..., "[", i, "]");
  return std::vector<int64_t>(data, data + size);
}

planner::Storage DecodeStorage(const tt_storage& from, size_t i, Checker& check) {
  planner::Storage storage;
  check.Bytes(from.bytes, "storages[", i, "].bytes");
  storage.bytes = from.bytes;
  switch (from.kind) {
    case TT_STORAGE_INTERMEDIATE:
      storage.kind = planner::StorageKind::kIntermediate;
      break;
    case TT_STORAGE_BLOCK_INPUT:
      storage.kind = planner::StorageKind::kBlockInput;
      break;
    case TT_STORAGE_PARAMETER:
      storage.kind = planner::StorageKind::kParameter;
      break;
    default:
      check.Require(false, absl::StrCat("storages[", i, "].kind = ", from.kind, " is no tt_storage_kind"));
  }
  storage.must_save = from.must_save != 0;
  storage.must_recompute = from.must_recompute != 0;
  storage.held_anyway = from.held_anyway != 0;
  storage.site = from.site;
  storage.label = Text(from.label);
  storage.sampled_bytes = ByteList(from.sampled_bytes, from.num_samples, check, "storages[", i, "].sampled_bytes");
  return storage;
}

planner::Op DecodeOp(const tt_op& from, size_t i, Checker& check) {
  planner::Op op;
  op.name = Text(from.name);
  check.Seconds(from.cost_seconds, "ops[", i, "].cost_seconds");
  op.cost_seconds = from.cost_seconds;
  op.reads = Indices(from.reads, check, "ops[", i, "].reads");
  op.writes = Indices(from.writes, check, "ops[", i, "].writes");
  op.replayable = from.replayable != 0;
  check.Bytes(from.replay_workspace_bytes, "ops[", i, "].replay_workspace_bytes");
  op.replay_workspace_bytes = from.replay_workspace_bytes;
  return op;
}

planner::ScheduledPart DecodePart(int32_t part) {
  if (part == 0) return {.phase = planner::Phase::kHead};
  return part > 0 ? planner::ScheduledPart{planner::Phase::kForward, part - 1}
                  : planner::ScheduledPart{planner::Phase::kBackward, -(part + 1)};
}

planner::BlockOption DecodeOption(const tt_block_option& from, size_t block, size_t i, Checker& check) {
  check.Bytes(from.saved_bytes, "blocks[", block, "].options[", i, "].saved_bytes");
  check.Bytes(from.own_peak_bytes, "blocks[", block, "].options[", i, "].own_peak_bytes");
  check.Seconds(from.seconds, "blocks[", block, "].options[", i, "].seconds");
  return {from.saved_bytes, from.own_peak_bytes, from.seconds, Text(from.label)};
}

planner::ProfiledBlock DecodeProfiledBlock(const tt_profiled_block& from, size_t i, Checker& check) {
  planner::ProfiledBlock block;
  block.structure_hash = from.structure_hash;
  planner::BlockInstance& instance = block.instance;
  instance.name = Text(from.name);
  check.Bytes(from.forward_base_bytes, "blocks[", i, "].forward_base_bytes");
  check.Bytes(from.backward_base_bytes, "blocks[", i, "].backward_base_bytes");
  check.Bytes(from.backward_transient_bytes, "blocks[", i, "].backward_transient_bytes");
  instance.forward_base_bytes = from.forward_base_bytes;
  instance.backward_base_bytes = from.backward_base_bytes;
  instance.backward_transient_bytes = from.backward_transient_bytes;
  // Either list may be absent: the tape's own numbers hold then.
  if (from.gradient_live_bytes != nullptr) {
    instance.gradient_live_bytes =
        ByteList(from.gradient_live_bytes, from.num_events, check, "blocks[", i, "].gradient_live_bytes");
  }
  if (from.start_live_bytes != nullptr) {
    instance.start_live_bytes = ByteList(from.start_live_bytes, from.num_events, check, "blocks[", i, "].start_live_bytes");
  }
  if (check.List(from.held_inputs, from.num_held_inputs, "blocks[", i, "].held_inputs")) {
    block.held_inputs.assign(from.held_inputs, from.held_inputs + from.num_held_inputs);
  }
  if (check.List(from.options, from.num_options, "blocks[", i, "].options")) {
    for (size_t o = 0; o < from.num_options; ++o) instance.options.push_back(DecodeOption(from.options[o], i, o, check));
  }
  return block;
}

planner::TapeCosts DecodeCosts(const tt_tape_costs& from, size_t i, Checker& check) {
  planner::TapeCosts costs;
  costs.structure_hash = from.structure_hash;
  if (check.List(from.cost_seconds, from.num_ops, "costs[", i, "].cost_seconds")) {
    for (size_t op = 0; op < from.num_ops; ++op) check.Finite(from.cost_seconds[op], "costs[", i, "].cost_seconds[", op, "]");
    costs.cost_seconds.assign(from.cost_seconds, from.cost_seconds + from.num_ops);
  }
  costs.replay_workspace_bytes =
      ByteList(from.replay_workspace_bytes, from.num_ops, check, "costs[", i, "].replay_workspace_bytes");
  return costs;
}

std::optional<planner::LinkRates> DecodeRates(const tt_link_rates* from, const char* name, Checker& check) {
  if (from == nullptr) return std::nullopt;
  planner::LinkRates rates = {from->bytes_per_second, from->latency_seconds, from->put_seconds, {}};
  check.NotNegative(from->bytes_per_second, name, ".bytes_per_second");
  check.Seconds(from->latency_seconds, name, ".latency_seconds");
  check.Seconds(from->put_seconds, name, ".put_seconds");
  if (check.List(from->windows, from->num_windows, name, ".windows")) {
    for (size_t i = 0; i < from->num_windows; ++i) {
      check.Bytes(from->windows[i].window_bytes, name, ".windows[", i, "].window_bytes");
      check.NotNegative(from->windows[i].bytes_per_second, name, ".windows[", i, "].bytes_per_second");
      rates.windows.push_back({from->windows[i].window_bytes, from->windows[i].bytes_per_second});
    }
  }
  return rates;
}

CollectiveReport DecodeCollectives(const tt_collective_report& from, Checker& check) {
  CollectiveReport report;
  check.Seconds(from.gather_seconds, "collectives.gather_seconds");
  check.Seconds(from.reduce_seconds, "collectives.reduce_seconds");
  check.Bytes(from.covered_bytes, "collectives.covered_bytes");
  check.NotNegative(from.covered_ratio, "collectives.covered_ratio");
  check.Bytes(from.network_bytes, "collectives.network_bytes");
  check.Bytes(from.pacing_generation, "collectives.pacing_generation");
  report.gather_seconds = from.gather_seconds;
  report.reduce_seconds = from.reduce_seconds;
  report.covered_bytes = from.covered_bytes;
  report.covered_ratio = from.covered_ratio;
  report.network_bytes = from.network_bytes;
  report.pacing_generation = from.pacing_generation;
  report.links.ranks = from.ranks;
  report.links.hosts = from.nodes;
  report.links.local = DecodeRates(from.local, "collectives.local", check);
  report.links.network = DecodeRates(from.network, "collectives.network", check);
  if (check.List(from.units, from.num_units, "collectives.units")) {
    for (size_t i = 0; i < from.num_units; ++i) {
      check.Bytes(from.units[i].gathered_bytes, "collectives.units[", i, "].gathered_bytes");
      report.links.units.push_back({from.units[i].gathered_bytes, from.units[i].count});
    }
  }
  return report;
}

}  // namespace

absl::StatusOr<LinkOptions> DecodeOptions(const tt_link_options& from) {
  LinkOptions options;
  options.planner = Text(from.planner);
  options.job = Text(from.job);
  options.incarnation = Text(from.incarnation);
  options.incarnation_order = from.incarnation_order;
  options.rank = from.rank;
  options.world_size = from.world_size;
  options.node = Text(from.node);
  options.torch_version = Text(from.torch_version);
  options.device = Text(from.device);
  options.agent_version = Text(from.agent_version);
  options.memory_limit_bytes = from.memory_limit_bytes;
  Checker check("options of the planner's link");
  check.Name(options.planner, "planner");
  check.Name(options.job, "job");
  check.Name(options.incarnation, "incarnation");
  check.Require(from.world_size >= 1, absl::StrCat("world_size = ", from.world_size, " must be at least 1"));
  check.Require(from.rank >= 0 && from.rank < from.world_size,
                absl::StrCat("rank = ", from.rank, " must be 0 to world_size - 1 = ", from.world_size - 1));
  check.Require(from.memory_limit_bytes >= -1, absl::StrCat("memory_limit_bytes = ", from.memory_limit_bytes,
                                                            "; use bytes, 0 for the least-memory plan or -1 to keep everything"));
  if (!check.ok()) return check.status();
  return options;
}

absl::StatusOr<planner::BlockTape> DecodeTape(const tt_block_tape& from) {
  planner::BlockTape tape;
  tape.name = Text(from.name);
  tape.structure_hash = from.structure_hash;
  Checker check(absl::StrCat("tape of block ", tape.name));
  if (check.List(from.storages, from.num_storages, "storages")) {
    tape.storages.reserve(from.num_storages);
    for (size_t i = 0; i < from.num_storages; ++i) tape.storages.push_back(DecodeStorage(from.storages[i], i, check));
  }
  if (check.List(from.ops, from.num_ops, "ops")) {
    tape.ops.reserve(from.num_ops);
    for (size_t i = 0; i < from.num_ops; ++i) tape.ops.push_back(DecodeOp(from.ops[i], i, check));
  }
  tape.consumed = Indices(from.consumed, check, "consumed");
  if (check.List(from.values, from.num_values, "values")) {
    for (size_t i = 0; i < from.num_values; ++i) {
      const tt_value& value = from.values[i];
      check.Seconds(value.copy_seconds, "values[", i, "].copy_seconds");
      tape.values.push_back({value.storage, value.version, value.copy_seconds});
    }
  }
  if (check.List(from.backward, from.num_backward, "backward")) {
    for (size_t i = 0; i < from.num_backward; ++i) {
      planner::BackwardEvent& event = tape.backward.emplace_back();
      event.reads = Indices(from.backward[i].reads, check, "backward[", i, "].reads");
      event.releases = Indices(from.backward[i].releases, check, "backward[", i, "].releases");
      check.Bytes(from.backward[i].gradient_live_bytes, "backward[", i, "].gradient_live_bytes");
      check.Bytes(from.backward[i].start_live_bytes, "backward[", i, "].start_live_bytes");
      event.gradient_live_bytes = from.backward[i].gradient_live_bytes;
      event.start_live_bytes = from.backward[i].start_live_bytes;
    }
  }
  if (from.forward_slack_bytes != nullptr) {
    tape.forward_slack_bytes = ByteList(from.forward_slack_bytes, from.num_ops, check, "forward_slack_bytes");
  }
  if (!check.ok()) return check.status();
  return tape;
}

absl::StatusOr<StepReport> DecodeReport(const tt_step_report& from) {
  Checker check(absl::StrCat("report of step ", from.step));
  check.Bytes(from.step, "step");
  check.Bytes(from.generation, "generation");
  check.Seconds(from.step_seconds, "step_seconds");
  check.Bytes(from.step_peak_bytes, "step_peak_bytes");
  check.Bytes(from.saved_bytes, "saved_bytes");
  check.Seconds(from.replay_seconds, "replay_seconds");
  check.Bytes(from.replayed_ops, "replayed_ops");
  check.Bytes(from.demoted_ops, "demoted_ops");
  check.Seconds(from.agent_seconds, "agent_seconds");
  StepReport report;
  report.step = from.step;
  report.generation = from.generation;
  report.step_seconds = from.step_seconds;
  report.step_peak_bytes = from.step_peak_bytes;
  report.saved_bytes = from.saved_bytes;
  report.replay_seconds = from.replay_seconds;
  report.replayed_ops = from.replayed_ops;
  report.demoted_ops = from.demoted_ops;
  report.agent_seconds = from.agent_seconds;
  if (from.has_profile != 0) {
    planner::MemoryProfile& profile = report.profile.emplace();
    profile.steady = from.steady != 0;
    profile.early = from.early != 0;
    check.Bytes(from.head_peak_bytes, "head_peak_bytes");
    check.Bytes(from.optimizer_peak_bytes, "optimizer_peak_bytes");
    profile.head_peak_bytes = from.head_peak_bytes;
    profile.optimizer_peak_bytes = from.optimizer_peak_bytes;
    check.Bytes(from.host_bytes_limit, "host_bytes_limit");
    check.Seconds(from.host_bytes_per_second, "host_bytes_per_second");
    profile.host_bytes_limit = from.host_bytes_limit;
    profile.host_bytes_per_second = from.host_bytes_per_second;
    if (check.List(from.schedule, from.num_schedule, "schedule")) {
      for (size_t i = 0; i < from.num_schedule; ++i) profile.schedule.push_back(DecodePart(from.schedule[i]));
    }
    check.Bytes(from.block_headroom_bytes, "block_headroom_bytes");
    check.Bytes(from.head_headroom_bytes, "head_headroom_bytes");
    check.Bytes(from.optimizer_headroom_bytes, "optimizer_headroom_bytes");
    profile.headroom = {from.block_headroom_bytes, from.head_headroom_bytes, from.optimizer_headroom_bytes};
    check.Require(from.num_blocks > 0, "a profile has at least one block");
    if (check.List(from.blocks, from.num_blocks, "blocks")) {
      profile.blocks.reserve(from.num_blocks);
      for (size_t i = 0; i < from.num_blocks; ++i) profile.blocks.push_back(DecodeProfiledBlock(from.blocks[i], i, check));
    }
  }
  if (check.List(from.costs, from.num_costs, "costs")) {
    for (size_t i = 0; i < from.num_costs; ++i) report.costs.push_back(DecodeCosts(from.costs[i], i, check));
  }
  report.live_bytes = ByteList(from.live_bytes, from.num_live_bytes, check, "live_bytes");
  if (from.collectives != nullptr) report.collectives = DecodeCollectives(*from.collectives, check);
  if (!check.ok()) return check.status();
  return report;
}

}  // namespace tidetape::link
