#include "planner/questions/rules.h"

#include <fnmatch.h>

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/model/validate.h"
#include "planner/tape/tape_index.h"

namespace tidetape::planner {
namespace {

bool Fits(const std::string& pattern, const std::string& name) { return fnmatch(pattern.c_str(), name.c_str(), 0) == 0; }

std::string RuleText(const Rule& rule) {
  return absl::StrCat(rule.action == RuleAction::kSave ? "save" : "replay", " '", rule.op_pattern, "' in blocks '",
                      rule.block_pattern, "'");
}

// Storages whose last writer the rule's pattern fits, and that a plan may save or not.
std::vector<int32_t> StoragesOf(const TapeIndex& index, const Rule& rule) {
  const BlockTape& tape = index.tape();
  std::vector<int32_t> result;
  for (size_t i = 0; i < tape.storages.size(); ++i) {
    const auto s = static_cast<int32_t>(i);
    const int32_t writer = index.last_writer(s);
    if (writer < 0 || !index.intermediate(s) || tape.storages[i].must_save || tape.storages[i].must_recompute) continue;
    bool read = index.consumed(s);
    for (int32_t op : index.touching(s)) read = read || op > writer;
    if (read && Fits(rule.op_pattern, tape.ops[writer].name)) result.push_back(s);
  }
  return result;
}

}  // namespace

absl::StatusOr<PlanningProblem> WithRules(const PlanningProblem& problem, const std::vector<Rule>& rules) {
  if (absl::Status status = ValidateProblem(problem); !status.ok()) return status;
  PlanningProblem ruled = problem;
  std::vector<bool> fits(rules.size(), false);
  std::map<std::pair<int32_t, std::vector<bool>>, int32_t> tape_of;  // by tape and the rules of the block
  for (BlockInstance& block : ruled.blocks) {
    if (!block.options.empty()) continue;
    std::vector<bool> own(rules.size());
    for (size_t r = 0; r < rules.size(); ++r) own[r] = Fits(rules[r].block_pattern, block.name);
    const auto [known, is_new] = tape_of.try_emplace({block.tape, own}, static_cast<int32_t>(ruled.tapes.size()));
    if (is_new) {
      BlockTape tape = problem.tapes[block.tape];
      const TapeIndex index(problem.tapes[block.tape]);
      for (size_t r = 0; r < rules.size(); ++r) {
        if (!own[r]) continue;
        for (int32_t s : StoragesOf(index, rules[r])) {
          fits[r] = true;
          tape.storages[s].must_save = rules[r].action == RuleAction::kSave;
          tape.storages[s].must_recompute = rules[r].action == RuleAction::kReplay;
        }
      }
      ruled.tapes.push_back(std::move(tape));
    }
    block.tape = known->second;
  }
  for (size_t r = 0; r < rules.size(); ++r) {
    if (!fits[r]) return absl::InvalidArgumentError(absl::StrCat("the rule ", RuleText(rules[r]), " fits no storage of any tape"));
  }
  return ruled;
}

absl::StatusOr<RulesPrice> PriceRules(const PlanningProblem& problem, const std::vector<Rule>& rules, const Effort& effort) {
  const auto ruled = WithRules(problem, rules);
  if (!ruled.ok()) return ruled.status();
  auto with = PlanStepClosely(*ruled, effort);
  if (!with.ok()) return with.status();
  auto without = PlanStepClosely(problem, effort);
  if (!without.ok()) return without.status();
  return RulesPrice{*std::move(with), *std::move(without)};
}

}  // namespace tidetape::planner
