// Wishes of people about what is kept: pins ("what these ops make is saved") and bans ("... is replayed"), by name.
#ifndef TIDETAPE_PLANNER_QUESTIONS_RULES_H_
#define TIDETAPE_PLANNER_QUESTIONS_RULES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/model/problem.h"
#include "planner/planner.h"

namespace tidetape::planner {

enum class RuleAction { kSave, kReplay };

// Patterns are those of a shell: * ? [a-z].
struct Rule {
  RuleAction action = RuleAction::kSave;
  std::string op_pattern;           // of the op that wrote the storage last, as in "aten::*mm*"
  std::string block_pattern = "*";  // of the block, as in "layers.1?"
};

// The problem with the rules as must_save and must_recompute of its tapes; blocks of one tape that follow different rules get tapes
// of their own. Of several rules for one storage the last one holds. Only storages that backward reads or that some op reads later
// can follow one, and a storage that the tape itself decides keeps its own.
//
// InvalidArgument, naming the rule, where it fits no storage of any block that has a tape.
absl::StatusOr<PlanningProblem> WithRules(const PlanningProblem& problem, const std::vector<Rule>& rules);

// What rules cost: the plan under them and the one without, under problem.memory_limit_bytes.
struct RulesPrice {
  StepPlan with;
  StepPlan without;
};

// InvalidArgument as of WithRules, or where the rules leave a tape no plan.
absl::StatusOr<RulesPrice> PriceRules(const PlanningProblem& problem, const std::vector<Rule>& rules, const Effort& effort);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_QUESTIONS_RULES_H_
