#include "planner/questions/policies.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "planner/step/step_planner.h"
#include "planner/tape/tape_plans.h"

namespace tidetape::planner {
namespace {

// Halvings of the budget's share: a thousandth of the bytes is fine enough.
constexpr int kBudgetSteps = 10;

// Storages that a policy may save: intermediates in their only version that backward reads, where the tape does not decide itself.
std::vector<int32_t> Candidates(const TapeIndex& index) {
  std::vector<int32_t> candidates;
  for (int32_t s : index.tape().consumed) {
    const Storage& storage = index.tape().storages[s];
    const bool free = index.consumed(s) && !storage.must_save && !storage.must_recompute;
    if (free && index.last_writer(s) >= 0 && !index.rewritten(s)) candidates.push_back(s);
  }
  std::sort(candidates.begin(), candidates.end());
  return candidates;
}

std::vector<int32_t> MatmulOutputs(const TapeIndex& index) {
  std::vector<int32_t> outputs;
  for (size_t s = 0; s < index.tape().storages.size(); ++s) {
    const Storage& storage = index.tape().storages[s];
    const auto at = static_cast<int32_t>(s);
    const bool free = index.intermediate(at) && !storage.must_save && !storage.must_recompute;
    if (free && index.last_writer(at) >= 0 && !index.rewritten(at) && IsMatmul(index.tape().ops[index.last_writer(at)])) {
      outputs.push_back(at);
    }
  }
  return outputs;
}

std::vector<int32_t> Ranked(const TapeIndex& index, Policy policy) {
  std::vector<int32_t> ranked = Candidates(index);
  const auto rank = [&](int32_t s) {
    const auto bytes = static_cast<double>(index.save_bytes(s));
    return policy == Policy::kBytesOnlyBudget ? bytes : -index.cost_seconds(index.last_writer(s)) / std::max(1.0, bytes);
  };
  std::stable_sort(ranked.begin(), ranked.end(), [&](int32_t a, int32_t b) { return rank(a) < rank(b); });
  return ranked;
}

// The ranked storages in turn that fit into a share of the bytes of all.
std::vector<int32_t> WithinBudget(const TapeIndex& index, const std::vector<int32_t>& ranked, double share) {
  int64_t all = 0;
  for (int32_t s : ranked) all += index.save_bytes(s);
  auto left = static_cast<int64_t>(share * static_cast<double>(all));
  std::vector<int32_t> chosen;
  for (int32_t s : ranked) {
    if (index.save_bytes(s) > left) continue;
    left -= index.save_bytes(s);
    chosen.push_back(s);
  }
  return chosen;
}

// `keep` and what the tape needs beside it: the plan with the fewest bytes that saves all of it.
absl::StatusOr<std::vector<int32_t>> SavedWith(const BlockTape& tape, const std::vector<int32_t>& keep) {
  BlockTape kept = tape;
  for (int32_t s : keep) kept.storages[s].must_save = true;
  auto plans = TapePlans::Create(kept);
  if (!plans.ok()) return plans.status();
  return (*plans)->AtVertex(static_cast<int32_t>((*plans)->vertices().size()) - 1).saved;
}

int32_t OptionOf(const BlockInstance& block, bool keeps_all) {
  const auto better = [&](const BlockOption& a, const BlockOption& b) {
    return keeps_all ? a.seconds < b.seconds : a.saved_bytes < b.saved_bytes;
  };
  return static_cast<int32_t>(std::min_element(block.options.begin(), block.options.end(), better) - block.options.begin());
}

class PolicyPlanner {
 public:
  PolicyPlanner(const PlanningProblem& problem, StepPlanner& planner, Policy policy)
      : problem_(problem), planner_(planner), policy_(policy) {}

  // `share` of a budget, where the policy has one.
  absl::StatusOr<StepPlan> Plan(double share) {
    std::vector<std::vector<int32_t>> of_tape(problem_.tapes.size()), rich_of_tape(of_tape), saved;
    std::vector<bool> made(problem_.tapes.size(), false);
    for (size_t b = 0; b < problem_.blocks.size(); ++b) {
      const BlockInstance& block = problem_.blocks[b];
      const bool keeps_all = policy_ == Policy::kEveryOtherBlock && b % 2 == 1;
      if (!block.options.empty()) {
        saved.push_back({OptionOf(block, keeps_all)});
        continue;
      }
      const BlockTape& tape = problem_.tapes[block.tape];
      if (!made[block.tape]) {
        const TapeIndex index(tape);
        auto lean = SavedWith(tape, Keep(index, share));
        auto rich = SavedWith(tape, Candidates(index));
        if (!lean.ok()) return lean.status();
        if (!rich.ok()) return rich.status();
        of_tape[block.tape] = *std::move(lean);
        rich_of_tape[block.tape] = *std::move(rich);
        made[block.tape] = true;
      }
      saved.push_back(keeps_all ? rich_of_tape[block.tape] : of_tape[block.tape]);
    }
    return planner_.Evaluate(saved, {}, problem_.memory_limit_bytes);
  }

 private:
  std::vector<int32_t> Keep(const TapeIndex& index, double share) const {
    switch (policy_) {
      case Policy::kFullCheckpoint:
      case Policy::kEveryOtherBlock:
        return {};
      case Policy::kKeepMatmuls:
        return MatmulOutputs(index);
      case Policy::kBytesOnlyBudget:
      case Policy::kAdditiveKnapsack:
        return WithinBudget(index, Ranked(index, policy_), share);
    }
    return {};
  }

  const PlanningProblem& problem_;
  StepPlanner& planner_;
  const Policy policy_;
};

}  // namespace

std::string PolicyName(Policy policy) {
  switch (policy) {
    case Policy::kFullCheckpoint:
      return "full checkpoint";
    case Policy::kEveryOtherBlock:
      return "every other block";
    case Policy::kKeepMatmuls:
      return "keep all matmuls";
    case Policy::kBytesOnlyBudget:
      return "bytes-only budget";
    case Policy::kAdditiveKnapsack:
      return "additive knapsack";
  }
  return "";
}

bool IsMatmul(const Op& op) {
  constexpr std::string_view kNames[] = {"mm", "matmul", "linear", "conv", "attention", "einsum", "product"};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](std::string_view name) { return op.name.find(name) != std::string::npos; });
}

absl::StatusOr<StepPlan> PlanByPolicy(const PlanningProblem& problem, Policy policy) {
  auto planner = StepPlanner::Create(problem);
  if (!planner.ok()) return planner.status();
  return PlanByPolicy(**planner, problem, policy);
}

absl::StatusOr<StepPlan> PlanByPolicy(StepPlanner& planner, const PlanningProblem& problem, Policy policy) {
  PolicyPlanner by_policy(problem, planner, policy);
  absl::StatusOr<StepPlan> best = by_policy.Plan(0);
  const bool has_budget = policy == Policy::kBytesOnlyBudget || policy == Policy::kAdditiveKnapsack;
  if (!has_budget || !best.ok() || !best->feasible) return best;
  double low = 0;
  for (double step = 1; step > 1.0 / (1 << kBudgetSteps); step /= 2) {
    absl::StatusOr<StepPlan> plan = by_policy.Plan(low + step);
    if (!plan.ok()) return plan;
    if (!plan->feasible) continue;
    low += step;
    best = std::move(plan);
    if (low >= 1) break;
  }
  return best;
}

}  // namespace tidetape::planner
