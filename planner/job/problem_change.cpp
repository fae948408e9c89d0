#include "planner/job/problem_change.h"

#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tidetape::planner {

ProblemDigest::ProblemDigest(const PlanningProblem& problem) {
  bases_["the head's peak"] = problem.head_peak_bytes;
  bases_["the optimizer's peak"] = problem.optimizer_peak_bytes;
  for (const BlockInstance& block : problem.blocks) {
    bases_[absl::StrCat("the forward base of ", block.name)] = block.forward_base_bytes;
    bases_[absl::StrCat("the backward base of ", block.name)] = block.backward_base_bytes;
    for (const BlockOption& option : block.options) seconds_[absl::StrCat("'", option.label, "'")] += option.seconds;
    if (!block.options.empty()) continue;
    for (const Op& op : problem.tapes[block.tape].ops) seconds_[op.name] += op.cost_seconds;
  }
}

std::string ProblemDigest::LargestMemoryChange(const ProblemDigest& now) const {
  std::string text;
  int64_t largest = 0;
  for (const auto& [name, bytes] : now.bases_) {
    const auto before = bases_.find(name);
    if (before == bases_.end() || std::abs(bytes - before->second) <= largest) continue;
    largest = std::abs(bytes - before->second);
    text = absl::StrCat(name, " went from ", before->second, " to ", bytes, " bytes");
  }
  return text;
}

std::string ProblemDigest::LargestCostChange(const ProblemDigest& now) const {
  std::string text;
  double largest = 0;
  for (const auto& [name, seconds] : now.seconds_) {
    const auto before = seconds_.find(name);
    if (before == seconds_.end() || std::abs(seconds - before->second) <= largest) continue;
    largest = std::abs(seconds - before->second);
    text = absl::StrFormat("%s takes %.6f s a step instead of %.6f s", name, seconds, before->second);
  }
  return text;
}

}  // namespace tidetape::planner
