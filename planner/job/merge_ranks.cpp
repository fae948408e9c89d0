#include "planner/job/merge_ranks.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/model/plan.h"

namespace tidetape::planner {
namespace {

std::string NameHash(uint64_t hash) { return absl::StrCat(absl::Hex(hash, absl::kZeroPad16)); }

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Ranks of one job run the same blocks; where they do not, no plan holds for all of them.
absl::Status CheckSameBlocks(const RankMeasurement& first, const RankMeasurement& other) {
  const auto& expected = first.profile->blocks;
  const auto& found = other.profile->blocks;
  if (expected.size() != found.size()) {
    return absl::FailedPreconditionError(absl::StrCat("rank ", other.rank, " ran ", found.size(), " blocks, rank ", first.rank,
                                                      " ran ", expected.size(), "; all ranks must run the same blocks"));
  }
  for (size_t k = 0; k < expected.size(); ++k) {
    if (expected[k].structure_hash == found[k].structure_hash) continue;
    return absl::FailedPreconditionError(absl::StrCat("block ", k, " (", expected[k].instance.name, ") has structure ",
                                                      NameHash(found[k].structure_hash), " on rank ", other.rank, " and ",
                                                      NameHash(expected[k].structure_hash), " on rank ", first.rank,
                                                      "; all ranks must run the same blocks"));
  }
  return absl::OkStatus();
}

absl::Status CheckSameSchedule(const RankMeasurement& first, const RankMeasurement& other) {
  const auto& expected = first.profile->schedule;
  const auto& found = other.profile->schedule;
  const auto equal = [](const ScheduledPart& a, const ScheduledPart& b) { return a.phase == b.phase && a.block == b.block; };
  if (std::equal(expected.begin(), expected.end(), found.begin(), found.end(), equal)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("rank ", other.rank, " runs its blocks forward and backward in another order ",
                                                    "than rank ", first.rank, "; all ranks must run them in the same order"));
}

// A plan names an option by its position, which must mean the same everywhere.
absl::Status CheckSameOptions(const RankMeasurement& first, const RankMeasurement& other, size_t k) {
  const BlockInstance& expected = first.profile->blocks[k].instance;
  const BlockInstance& found = other.profile->blocks[k].instance;
  const auto same_label = [](const BlockOption& a, const BlockOption& b) { return a.label == b.label; };
  if (std::equal(expected.options.begin(), expected.options.end(), found.options.begin(), found.options.end(), same_label)) {
    return absl::OkStatus();
  }
  const auto labels = [](const BlockInstance& instance) {
    if (instance.options.empty()) return std::string("a tape");
    return absl::StrCat("options ", absl::StrJoin(instance.options, ", ", [](std::string* out, const BlockOption& option) {
                          absl::StrAppend(out, "'", option.label, "'");
                        }));
  };
  return absl::FailedPreconditionError(absl::StrCat("block ", k, " (", expected.name, ") has ", labels(found), " on rank ",
                                                    other.rank, " and ", labels(expected), " on rank ", first.rank,
                                                    "; all ranks must bring the same options in the same order"));
}

absl::Status CheckEvents(const RankMeasurement& rank, const ProfiledBlock& block, const BlockTape& tape) {
  for (const auto* list : {&block.instance.gradient_live_bytes, &block.instance.start_live_bytes}) {
    if (list->empty() || list->size() == tape.backward.size()) continue;
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank.rank, " measured ", list->size(), " backward events of block ",
                                                   block.instance.name, ", whose tape has ", tape.backward.size()));
  }
  return absl::OkStatus();
}

void RaiseTo(const std::vector<int64_t>& other, std::vector<int64_t>& values) {
  values.resize(std::max(values.size(), other.size()));
  for (size_t i = 0; i < other.size(); ++i) values[i] = std::max(values[i], other[i]);
}

// Where a rank holds less free, more of the largest bytes may be what it needs.
void LowerTo(const Headroom& other, Headroom& headroom) {
  headroom.block_bytes = std::min(headroom.block_bytes, other.block_bytes);
  headroom.head_bytes = std::min(headroom.head_bytes, other.head_bytes);
  headroom.optimizer_bytes = std::min(headroom.optimizer_bytes, other.optimizer_bytes);
}

void RaiseTo(const BlockInstance& other, BlockInstance& instance) {
  instance.forward_base_bytes = std::max(instance.forward_base_bytes, other.forward_base_bytes);
  instance.backward_base_bytes = std::max(instance.backward_base_bytes, other.backward_base_bytes);
  instance.backward_transient_bytes = std::max(instance.backward_transient_bytes, other.backward_transient_bytes);
  RaiseTo(other.gradient_live_bytes, instance.gradient_live_bytes);
  RaiseTo(other.start_live_bytes, instance.start_live_bytes);
  for (size_t o = 0; o < instance.options.size(); ++o) {
    BlockOption& option = instance.options[o];
    option.saved_bytes = std::max(option.saved_bytes, other.options[o].saved_bytes);
    option.own_peak_bytes = std::max(option.own_peak_bytes, other.options[o].own_peak_bytes);
  }
}

// Each option's seconds as the median over the ranks.
void ApplyOptionSeconds(const std::vector<RankMeasurement>& ranks, size_t k, BlockInstance& instance) {
  for (size_t o = 0; o < instance.options.size(); ++o) {
    std::vector<double> seconds;
    for (const RankMeasurement& rank : ranks) seconds.push_back(rank.profile->blocks[k].instance.options[o].seconds);
    instance.options[o].seconds = Median(std::move(seconds));
  }
}

// Inputs that the execution alone holds on every rank, as storages of the tape.
std::vector<int32_t> HeldOnAllRanks(const std::vector<RankMeasurement>& ranks, size_t k, const BlockTape& tape) {
  std::vector<int32_t> held;
  for (size_t s = 0; s < tape.storages.size(); ++s) {
    const Storage& storage = tape.storages[s];
    if (storage.kind != StorageKind::kBlockInput) continue;
    const bool everywhere = std::all_of(ranks.begin(), ranks.end(), [&](const RankMeasurement& rank) {
      const std::vector<uint64_t>& sites = rank.profile->blocks[k].held_inputs;
      return std::find(sites.begin(), sites.end(), storage.site) != sites.end();
    });
    if (everywhere) held.push_back(static_cast<int32_t>(s));
  }
  return held;
}

absl::Status ApplyCosts(const std::vector<RankMeasurement>& ranks, uint64_t hash, BlockTape& tape) {
  std::vector<const TapeCosts*> measured;
  for (const RankMeasurement& rank : ranks) {
    const auto found = rank.costs->find(hash);
    if (found == rank.costs->end()) continue;
    if (found->second.cost_seconds.size() != tape.ops.size() || found->second.replay_workspace_bytes.size() != tape.ops.size()) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank.rank, " sent costs of ", found->second.cost_seconds.size(),
                                                     " ops and workspaces of ", found->second.replay_workspace_bytes.size(),
                                                     " ops for the tape of block ", tape.name, ", which has ", tape.ops.size()));
    }
    measured.push_back(&found->second);
  }
  for (size_t i = 0; i < tape.ops.size(); ++i) {
    std::vector<double> seconds;
    int64_t workspace = 0;
    for (const TapeCosts* costs : measured) {
      if (costs->cost_seconds[i] < 0) continue;
      seconds.push_back(costs->cost_seconds[i]);
      workspace = std::max(workspace, costs->replay_workspace_bytes[i]);
    }
    if (seconds.empty()) continue;
    tape.ops[i].cost_seconds = Median(std::move(seconds));
    tape.ops[i].replay_workspace_bytes = workspace;
  }
  return absl::OkStatus();
}

}  // namespace

int64_t LimitForPlanner(int64_t memory_limit_bytes) { return memory_limit_bytes < 0 ? kUnlimitedBytes : memory_limit_bytes; }

void UpdateCosts(const TapeCosts& update, CostsByHash& known) {
  const auto [entry, inserted] = known.try_emplace(update.structure_hash, update);
  TapeCosts& costs = entry->second;
  if (inserted) return;
  const size_t ops = update.cost_seconds.size();
  if (costs.cost_seconds.size() != ops || costs.replay_workspace_bytes.size() != ops ||
      update.replay_workspace_bytes.size() != ops) {
    costs = update;  // does not fit: MergeRanks says so where it does not fit the tape either
    return;
  }
  for (size_t i = 0; i < ops; ++i) {
    if (update.cost_seconds[i] < 0) continue;
    costs.cost_seconds[i] = update.cost_seconds[i];
    costs.replay_workspace_bytes[i] = update.replay_workspace_bytes[i];
  }
}

std::vector<uint64_t> MissingTapes(const MemoryProfile& profile, const TapesByHash& tapes) {
  std::vector<uint64_t> missing;
  std::set<uint64_t> seen;
  for (const ProfiledBlock& block : profile.blocks) {
    if (!block.instance.options.empty() || tapes.count(block.structure_hash) > 0) continue;
    if (seen.insert(block.structure_hash).second) missing.push_back(block.structure_hash);
  }
  return missing;
}

absl::StatusOr<PlanningProblem> MergeRanks(const TapesByHash& tapes, const std::vector<RankMeasurement>& ranks,
                                           int64_t memory_limit_bytes) {
  if (ranks.empty()) return absl::FailedPreconditionError("no rank has measured a step yet");
  PlanningProblem problem;
  problem.memory_limit_bytes = LimitForPlanner(memory_limit_bytes);
  problem.host_bytes_limit = ranks.front().profile->host_bytes_limit;
  problem.host_bytes_per_second = ranks.front().profile->host_bytes_per_second;
  problem.schedule = ranks.front().profile->schedule;
  problem.headroom = ranks.front().profile->headroom;
  std::map<uint64_t, int32_t> positions;
  for (const ProfiledBlock& block : ranks.front().profile->blocks) {
    BlockInstance& instance = problem.blocks.emplace_back(block.instance);
    if (!instance.options.empty()) continue;
    const auto tape = tapes.find(block.structure_hash);
    if (tape == tapes.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the tape ", NameHash(block.structure_hash), " of block ", instance.name, " has not arrived"));
    }
    const auto [position, inserted] = positions.try_emplace(block.structure_hash, static_cast<int32_t>(problem.tapes.size()));
    if (inserted) {
      problem.tapes.push_back(tape->second);
      if (absl::Status status = ApplyCosts(ranks, block.structure_hash, problem.tapes.back()); !status.ok()) return status;
    }
    instance.tape = position->second;
  }
  for (const RankMeasurement& rank : ranks) {
    if (absl::Status status = CheckSameBlocks(ranks.front(), rank); !status.ok()) return status;
    if (absl::Status status = CheckSameSchedule(ranks.front(), rank); !status.ok()) return status;
    for (size_t k = 0; k < problem.blocks.size(); ++k) {
      const ProfiledBlock& measured = rank.profile->blocks[k];
      BlockInstance& instance = problem.blocks[k];
      if (absl::Status status = CheckSameOptions(ranks.front(), rank, k); !status.ok()) return status;
      if (instance.options.empty()) {
        if (absl::Status status = CheckEvents(rank, measured, problem.tapes[instance.tape]); !status.ok()) return status;
      }
      RaiseTo(measured.instance, instance);
    }
    problem.head_peak_bytes = std::max(problem.head_peak_bytes, rank.profile->head_peak_bytes);
    problem.optimizer_peak_bytes = std::max(problem.optimizer_peak_bytes, rank.profile->optimizer_peak_bytes);
    LowerTo(rank.profile->headroom, problem.headroom);
    problem.host_bytes_limit = std::min(problem.host_bytes_limit, rank.profile->host_bytes_limit);
    problem.host_bytes_per_second = std::min(problem.host_bytes_per_second, rank.profile->host_bytes_per_second);
  }
  for (size_t k = 0; k < problem.blocks.size(); ++k) {
    BlockInstance& instance = problem.blocks[k];
    if (instance.options.empty()) {
      instance.held_inputs = HeldOnAllRanks(ranks, k, problem.tapes[instance.tape]);
    } else {
      ApplyOptionSeconds(ranks, k, instance);
    }
  }
  return problem;
}

}  // namespace tidetape::planner
