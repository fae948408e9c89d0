#include "planner/job/site_plan.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tidetape::planner {
namespace {

// Site 0 is no name. Of a block input a plan can say that it moves.
bool HasAction(const Storage& storage, Action action) {
  return storage.site != 0 && (storage.kind == StorageKind::kIntermediate || action == Action::kMove);
}

BlockSites NameBlock(const BlockTape& tape, const BlockPlan& plan, Action default_action) {
  BlockSites named;
  named.default_action = default_action;
  std::vector<Action> actions(tape.storages.size(), Action::kReplay);
  for (int32_t storage : plan.saved) actions[storage] = Action::kSave;
  for (int32_t storage : plan.moved) actions[storage] = Action::kMove;
  std::vector<int32_t> candidates;
  if (default_action == Action::kSave) {
    // Only what backward reads is kept by default, so nothing else needs to be named.
    candidates = tape.consumed;
  } else {
    candidates.insert(candidates.end(), plan.saved.begin(), plan.saved.end());
  }
  candidates.insert(candidates.end(), plan.moved.begin(), plan.moved.end());
  for (int32_t storage : candidates) {
    if (!HasAction(tape.storages[storage], actions[storage]) || actions[storage] == default_action) continue;
    named.sites.push_back({tape.storages[storage].site, actions[storage]});
  }
  std::sort(named.sites.begin(), named.sites.end(), [](const SiteAction& a, const SiteAction& b) { return a.site < b.site; });
  named.sites.erase(std::unique(named.sites.begin(), named.sites.end()), named.sites.end());
  return named;
}

// FNV-1a over 64-bit words.
class Hasher {
 public:
  void Add(uint64_t word) {
    for (int shift = 0; shift < 64; shift += 8) hash_ = (hash_ ^ ((word >> shift) & 0xff)) * 0x100000001b3;
  }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace

std::vector<BlockSites> NameBySites(const PlanningProblem& problem, const StepPlan& plan) {
  const Action default_action = problem.memory_limit_bytes == kUnlimitedBytes ? Action::kSave : Action::kReplay;
  std::vector<BlockSites> named;
  named.reserve(plan.blocks.size());
  for (size_t k = 0; k < plan.blocks.size(); ++k) {
    const BlockInstance& instance = problem.blocks[k];
    if (!instance.options.empty()) {
      named.push_back({default_action, {}});
    } else {
      named.push_back(NameBlock(problem.tapes[instance.tape], plan.blocks[k], default_action));
    }
  }
  return named;
}

std::string PlanEtag(const PlanningProblem& problem, const StepPlan& plan, const std::vector<uint64_t>& structure_hashes) {
  Hasher hasher;
  hasher.Add(static_cast<uint64_t>(problem.memory_limit_bytes));
  hasher.Add(static_cast<uint64_t>(plan.step_peak_bytes));
  hasher.Add(std::bit_cast<uint64_t>(plan.replay_seconds));
  for (uint64_t hash : structure_hashes) hasher.Add(hash);
  const std::vector<BlockSites> named = NameBySites(problem, plan);
  for (size_t k = 0; k < named.size(); ++k) {
    hasher.Add(static_cast<uint64_t>(named[k].default_action));
    hasher.Add(static_cast<uint64_t>(plan.blocks[k].option));
    hasher.Add(named[k].sites.size());
    for (const SiteAction& action : named[k].sites) {
      hasher.Add(action.site);
      hasher.Add(static_cast<uint64_t>(action.action));
    }
  }
  return absl::StrCat(absl::Hex(hasher.hash(), absl::kZeroPad16));
}

std::string DescribePeakHolder(const PlanningProblem& problem, const PeakHolder& holder) {
  const bool in_block = holder.block >= 0 && static_cast<size_t>(holder.block) < problem.blocks.size();
  const std::string name = in_block ? problem.blocks[holder.block].name : "";
  switch (holder.phase) {
    case Phase::kForward:
      return absl::StrCat("forward of ", name);
    case Phase::kBackward:
      return absl::StrCat("backward of ", name);
    case Phase::kHead:
      return "head";
    case Phase::kOptimizer:
      return "optimizer";
  }
  return "";
}

}  // namespace tidetape::planner
