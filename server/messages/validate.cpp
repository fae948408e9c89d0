#include "server/messages/validate.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "net/error_info.h"

namespace tidetape::server {
namespace {

// Generations and steps beyond this are mistakes; the bound keeps "one above" from overflowing.
constexpr int64_t kLargestCount = int64_t{1} << 53;
constexpr int32_t kLargestWorld = 1 << 20;
constexpr size_t kLongestName = 256;
constexpr int kMostWindows = 64;
constexpr int kMostUnitSizes = 4096;
constexpr int kMostOptions = 64;

// Checks the fields of one message and keeps the first complaint.
class Checker {
 public:
  explicit Checker(std::string where) : where_(std::move(where)) {}

  template <typename... Field>
  void Bytes(int64_t value, const Field&... field) {
    if (status_.ok() && value < 0) Complain(absl::StrCat(field...), value, "must not be negative");
  }

  template <typename... Field>
  void Count(int64_t value, const Field&... field) {
    if (!status_.ok()) return;
    if (value < 0) Complain(absl::StrCat(field...), value, "must not be negative");
    if (value > kLargestCount) Complain(absl::StrCat(field...), value, "is too large");
  }

  template <typename... Field>
  void Seconds(double value, const Field&... field) {
    if (status_.ok() && (!std::isfinite(value) || value < 0)) {
      Complain(absl::StrCat(field...), value, "must be finite and not negative");
    }
  }

  // Negative means "not measured".
  template <typename... Field>
  void SecondsOrNone(double value, const Field&... field) {
    if (status_.ok() && !std::isfinite(value)) Complain(absl::StrCat(field...), value, "must be finite");
  }

  template <typename List, typename... Field>
  void Indices(const List& list, int size, const Field&... field) {
    for (int i = 0; status_.ok() && i < list.size(); ++i) {
      if (list[i] < 0 || list[i] >= size) {
        Complain(absl::StrCat(field..., "[", i, "]"), list[i], absl::StrCat("is not an index below ", size));
      }
    }
  }

  void Name(const std::string& value, absl::string_view field) {
    if (!status_.ok()) return;
    const bool printable = std::all_of(value.begin(), value.end(), [](char c) { return c > ' ' && c < 127; });
    if (value.empty() || value.size() > kLongestName || !printable) {
      Refuse(field, absl::StrCat(field, " must have 1 to ", kLongestName, " printable ASCII characters and no spaces"));
    }
  }

  // The complaint begins with the field.
  void Require(bool condition, absl::string_view complaint) {
    if (status_.ok() && !condition) Refuse(complaint.substr(0, complaint.find(' ')), complaint);
  }

  const absl::Status& status() const { return status_; }

 private:
  template <typename T>
  void Complain(absl::string_view field, T value, absl::string_view complaint) {
    Refuse(field, absl::StrCat(field, " = ", value, " ", complaint));
  }

  void Refuse(absl::string_view field, absl::string_view complaint) {
    status_ = net::WithErrorInfo(absl::InvalidArgumentError(absl::StrCat(where_, ": ", complaint)), "INVALID_FIELD",
                                 {{"field", std::string(field)}});
  }

  const std::string where_;
  absl::Status status_;
};

std::string Where(const Sender& sender) { return absl::StrCat("job '", sender.job, "', rank ", sender.rank); }

void CheckInstance(const v1::BlockInstance& instance, const std::string& field, Checker& check) {
  check.Bytes(instance.forward_base_bytes(), field, ".forward_base_bytes");
  check.Bytes(instance.backward_base_bytes(), field, ".backward_base_bytes");
  check.Bytes(instance.backward_transient_bytes(), field, ".backward_transient_bytes");
  for (int i = 0; i < instance.gradient_live_bytes_size(); ++i) {
    check.Bytes(instance.gradient_live_bytes(i), field, ".gradient_live_bytes[", i, "]");
  }
  for (int i = 0; i < instance.start_live_bytes_size(); ++i) {
    check.Bytes(instance.start_live_bytes(i), field, ".start_live_bytes[", i, "]");
  }
  check.Require(instance.options_size() <= kMostOptions, absl::StrCat(field, ".options has more than ", kMostOptions, " entries"));
  std::set<std::string> labels;
  for (int i = 0; i < instance.options_size(); ++i) {
    const v1::BlockOption& option = instance.options(i);
    check.Bytes(option.saved_bytes(), field, ".options[", i, "].saved_bytes");
    check.Bytes(option.own_peak_bytes(), field, ".options[", i, "].own_peak_bytes");
    check.Seconds(option.seconds(), field, ".options[", i, "].seconds");
    check.Require(!option.label().empty() && option.label().size() <= kLongestName,
                  absl::StrCat(field, ".options[", i, "].label must have 1 to ", kLongestName, " bytes"));
    check.Require(labels.insert(option.label()).second,
                  absl::StrCat(field, ".options[", i, "].label is '", option.label(), "', as that of an option before it"));
  }
}

void CheckLink(const v1::LinkRates& link, const char* field, Checker& check) {
  check.Seconds(link.bytes_per_second(), field, ".bytes_per_second");
  check.Seconds(link.latency_seconds(), field, ".latency_seconds");
  check.Seconds(link.put_seconds(), field, ".put_seconds");
  check.Require(link.windows_size() <= kMostWindows, absl::StrCat(field, " has more than ", kMostWindows, " windows"));
  for (int i = 0; i < link.windows_size(); ++i) {
    check.Bytes(link.windows(i).window_bytes(), field, ".windows[", i, "].window_bytes");
    check.Seconds(link.windows(i).bytes_per_second(), field, ".windows[", i, "].bytes_per_second");
  }
}

void CheckCollectives(const v1::CollectiveReport& report, Checker& check) {
  check.Seconds(report.gather_seconds(), "collectives.gather_seconds");
  check.Seconds(report.reduce_seconds(), "collectives.reduce_seconds");
  check.Bytes(report.covered_bytes(), "collectives.covered_bytes");
  check.Seconds(report.covered_ratio(), "collectives.covered_ratio");
  check.Bytes(report.network_bytes(), "collectives.network_bytes");
  check.Count(report.pacing_generation(), "collectives.pacing_generation");
  check.Require(report.ranks() >= 1 && report.ranks() <= kLargestWorld,
                absl::StrCat("collectives.ranks = ", report.ranks(), " must be 1 to ", kLargestWorld));
  check.Require(report.nodes() >= 0 && report.nodes() <= report.ranks(),
                absl::StrCat("collectives.nodes = ", report.nodes(), " must be 0 to ranks = ", report.ranks()));
  if (report.has_local()) CheckLink(report.local(), "collectives.local", check);
  if (report.has_network()) CheckLink(report.network(), "collectives.network", check);
  check.Require(report.units_size() <= kMostUnitSizes, absl::StrCat("collectives.units has more than ", kMostUnitSizes, " sizes"));
  for (int i = 0; i < report.units_size(); ++i) {
    check.Bytes(report.units(i).gathered_bytes(), "collectives.units[", i, "].gathered_bytes");
    check.Require(report.units(i).count() >= 1, absl::StrCat("collectives.units[", i, "].count must be at least 1"));
  }
}

}  // namespace

absl::Status ValidateHello(const v1::Hello& hello) {
  Checker names("hello");
  names.Name(hello.job(), "job");
  names.Name(hello.incarnation(), "incarnation");
  if (!names.status().ok()) return names.status();
  Checker check(absl::StrCat("hello of job '", hello.job(), "', rank ", hello.rank()));
  check.Require(hello.world_size() >= 1 && hello.world_size() <= kLargestWorld,
                absl::StrCat("world_size = ", hello.world_size(), " must be 1 to ", kLargestWorld));
  check.Require(hello.rank() >= 0 && hello.rank() < hello.world_size(),
                absl::StrCat("rank must be at least 0 and below world_size = ", hello.world_size()));
  check.Require(hello.memory_limit_bytes() >= -1,
                absl::StrCat("memory_limit_bytes = ", hello.memory_limit_bytes(),
                             "; use bytes, 0 for the least-memory plan or -1 to keep everything"));
  check.Count(hello.held_generation(), "held_generation");
  check.Count(hello.active_generation(), "active_generation");
  return check.status();
}

absl::Status ValidateReport(const Sender& sender, const v1::StepReport& report) {
  Checker check(absl::StrCat(Where(sender), ", step ", report.step()));
  check.Count(report.step(), "step");
  check.Count(report.generation(), "generation");
  check.Seconds(report.step_seconds(), "step_seconds");
  check.Bytes(report.step_peak_bytes(), "step_peak_bytes");
  check.Bytes(report.saved_bytes(), "saved_bytes");
  check.Seconds(report.replay_seconds(), "replay_seconds");
  check.Bytes(report.replayed_ops(), "replayed_ops");
  check.Bytes(report.demoted_ops(), "demoted_ops");
  check.Seconds(report.agent_seconds(), "agent_seconds");
  for (int i = 0; i < report.live_bytes_size(); ++i) check.Bytes(report.live_bytes(i), "live_bytes[", i, "]");
  if (report.has_profile()) {
    const v1::MemoryProfile& profile = report.profile();
    check.Bytes(profile.head_peak_bytes(), "profile.head_peak_bytes");
    check.Bytes(profile.optimizer_peak_bytes(), "profile.optimizer_peak_bytes");
    check.Bytes(profile.host_bytes_limit(), "profile.host_bytes_limit");
    check.Seconds(profile.host_bytes_per_second(), "profile.host_bytes_per_second");
    check.Require(profile.blocks_size() > 0, "profile.blocks is empty; leave the profile out where nothing was measured");
    for (int i = 0; i < profile.blocks_size(); ++i) {
      CheckInstance(profile.blocks(i).instance(), absl::StrCat("profile.blocks[", i, "]"), check);
    }
    for (int i = 0; i < profile.schedule_size(); ++i) {
      const int32_t block = profile.schedule(i).block();
      check.Require(
          block >= 0 && block < profile.blocks_size(),
          absl::StrCat("profile.schedule[", i, "].block is ", block, ", but the profile has ", profile.blocks_size(), " blocks"));
    }
  }
  if (report.has_collectives()) CheckCollectives(report.collectives(), check);
  for (int i = 0; i < report.costs_size(); ++i) {
    const v1::TapeCosts& costs = report.costs(i);
    check.Require(costs.cost_seconds_size() == costs.replay_workspace_bytes_size(),
                  absl::StrCat("costs[", i, "] has ", costs.cost_seconds_size(), " cost_seconds and ",
                               costs.replay_workspace_bytes_size(), " replay_workspace_bytes; both have one entry an op"));
    for (int op = 0; op < costs.cost_seconds_size(); ++op) {
      check.SecondsOrNone(costs.cost_seconds(op), "costs[", i, "].cost_seconds[", op, "]");
    }
    for (int op = 0; op < costs.replay_workspace_bytes_size(); ++op) {
      check.Bytes(costs.replay_workspace_bytes(op), "costs[", i, "].replay_workspace_bytes[", op, "]");
    }
  }
  return check.status();
}

absl::Status ValidateTape(const Sender& sender, const v1::BlockTape& tape) {
  Checker check(
      absl::StrCat(Where(sender), ", tape ", absl::Hex(tape.structure_hash(), absl::kZeroPad16), " of block '", tape.name(), "'"));
  const int storages = tape.storages_size();
  for (int i = 0; i < storages; ++i) {
    check.Bytes(tape.storages(i).bytes(), "storages[", i, "].bytes");
    check.Require(v1::Storage::Kind_IsValid(tape.storages(i).kind()) && tape.storages(i).kind() != v1::Storage::KIND_UNSPECIFIED,
                  absl::StrCat("storages[", i, "].kind is not set"));
  }
  for (int i = 0; i < tape.ops_size(); ++i) {
    check.Seconds(tape.ops(i).cost_seconds(), "ops[", i, "].cost_seconds");
    check.Bytes(tape.ops(i).replay_workspace_bytes(), "ops[", i, "].replay_workspace_bytes");
    check.Indices(tape.ops(i).reads(), storages, "ops[", i, "].reads");
    check.Indices(tape.ops(i).writes(), storages, "ops[", i, "].writes");
  }
  check.Indices(tape.consumed(), storages, "consumed");
  for (int i = 0; i < tape.values_size(); ++i) {
    const int32_t storage = tape.values(i).storage();
    check.Require(storage >= 0 && storage < storages, absl::StrCat("values[", i, "].storage = ", storage, " is not an index"));
    check.Count(tape.values(i).version(), "values[", i, "].version");
    check.Seconds(tape.values(i).copy_seconds(), "values[", i, "].copy_seconds");
  }
  for (int i = 0; i < tape.backward_size(); ++i) {
    check.Indices(tape.backward(i).reads(), storages, "backward[", i, "].reads");
    check.Indices(tape.backward(i).releases(), storages, "backward[", i, "].releases");
    check.Bytes(tape.backward(i).gradient_live_bytes(), "backward[", i, "].gradient_live_bytes");
    check.Bytes(tape.backward(i).start_live_bytes(), "backward[", i, "].start_live_bytes");
  }
  return check.status();
}

absl::Status ValidateConstraints(const std::string& job, const v1::Constraints& constraints) {
  Checker check(absl::StrCat("constraints of job '", job, "'"));
  check.Require(constraints.memory_limit_bytes() >= -1,
                absl::StrCat("memory_limit_bytes = ", constraints.memory_limit_bytes(),
                             "; use bytes, 0 for the least-memory plan or -1 to keep everything"));
  check.Require(constraints.frozen_generation() >= 0,
                absl::StrCat("frozen_generation = ", constraints.frozen_generation(), "; use the generation of a plan, or 0"));
  for (int i = 0; i < constraints.pins_size(); ++i) {
    const v1::Pin& pin = constraints.pins(i);
    check.Require(!pin.block_glob().empty() || !pin.label_glob().empty(),
                  absl::StrCat("pins[", i, "] has neither block_glob nor label_glob"));
    check.Require(pin.action() == v1::ACTION_SAVE || pin.action() == v1::ACTION_REPLAY,
                  absl::StrCat("pins[", i, "].action must be ACTION_SAVE or ACTION_REPLAY"));
  }
  return check.status();
}

}  // namespace tidetape::server
