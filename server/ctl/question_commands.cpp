#include "server/ctl/question_commands.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/io/plan_json.h"
#include "planner/io/problem_io.h"
#include "planner/questions/policies.h"
#include "planner/questions/rules.h"
#include "server/ctl/file_commands.h"
#include "server/ctl/frontier_svg.h"
#include "server/ctl/output.h"
#include "server/ctl/table.h"
#include "server/text/units.h"

namespace tidetape::ctl {
namespace {

planner::Rule ParseWish(planner::RuleAction action, const std::string& wish) {
  const size_t at = wish.find('@');
  planner::Rule rule{.action = action, .op_pattern = wish.substr(0, at)};
  if (at != std::string::npos) rule.block_pattern = wish.substr(at + 1);
  return rule;
}

}  // namespace

absl::Status ComparePolicies(const Question& question, std::ostream& out) {
  const auto problem = ReadProblem(question.file, question.memory_limit_bytes);
  if (!problem.ok()) return problem.status();
  std::vector<std::string> entries;
  Table table({"POLICY", "STEP PEAK", "REPLAY", "PLANNED AT THAT PEAK", "KEEPS THE LIMIT"});
  for (planner::Policy policy : planner::kPolicies) {
    const auto theirs = planner::PlanByPolicy(*problem, policy);
    if (!theirs.ok()) return InFile(question.file, theirs.status());
    planner::PlanningProblem same_peak = *problem;
    same_peak.memory_limit_bytes = std::max<int64_t>(1, theirs->step_peak_bytes);
    const auto ours = planner::PlanStepClosely(same_peak, question.effort);
    if (!ours.ok()) return InFile(question.file, ours.status());
    table.Add({planner::PolicyName(policy), FormatBytes(theirs->step_peak_bytes), FormatSeconds(theirs->replay_seconds),
               ours->feasible ? FormatSeconds(ours->replay_seconds) : "not found", theirs->feasible ? "yes" : "no"});
    entries.push_back(absl::StrFormat(
        R"({"policy": "%s", "step_peak_bytes": %d, "replay_seconds": %.9g, "planned_seconds": %.9g, "feasible": %s})",
        planner::PolicyName(policy), theirs->step_peak_bytes, theirs->replay_seconds, ours->replay_seconds,
        theirs->feasible ? "true" : "false"));
  }
  if (question.json) {
    out << "[\n";
    for (size_t i = 0; i < entries.size(); ++i) out << "  " << entries[i] << (i + 1 < entries.size() ? ",\n" : "\n");
    out << "]\n";
  } else {
    table.Print(out);
  }
  return absl::OkStatus();
}

absl::Status PrintStepFrontier(const Question& question, const std::string& svg, std::ostream& out) {
  const auto problem = ReadProblem(question.file, question.memory_limit_bytes);
  if (!problem.ok()) return problem.status();
  const auto points = planner::StepFrontier(*problem);
  if (!points.ok()) return InFile(question.file, points.status());
  FrontierPicture picture;
  picture.title = absl::StrCat("Frontier of ", question.file);
  picture.bytes_axis = "step peak";
  picture.limit_bytes = problem->memory_limit_bytes == planner::kUnlimitedBytes ? 0 : problem->memory_limit_bytes;
  for (const auto& point : *points) *picture.points.Add() = planner::ToProto(point);
  if (!svg.empty()) {
    if (absl::Status status = WriteFile(svg, FrontierSvg(picture)); !status.ok()) return status;
  }
  if (question.json) {
    out << planner::StepFrontierJson(*points);
    return absl::OkStatus();
  }
  Table table({"STEP PEAK", "REPLAY"});
  for (const auto& point : *points) table.Add({FormatBytes(point.bytes), FormatSeconds(point.replay_seconds)});
  table.Print(out);
  return absl::OkStatus();
}

absl::Status PriceWishes(const Question& question, const std::vector<std::string>& save, const std::vector<std::string>& replay,
                         std::ostream& out) {
  const auto problem = ReadProblem(question.file, question.memory_limit_bytes);
  if (!problem.ok()) return problem.status();
  std::vector<planner::Rule> rules;
  for (const std::string& wish : save) rules.push_back(ParseWish(planner::RuleAction::kSave, wish));
  for (const std::string& wish : replay) rules.push_back(ParseWish(planner::RuleAction::kReplay, wish));
  if (rules.empty()) return absl::InvalidArgumentError("name what is to be kept with --save or replayed with --replay");
  const auto price = planner::PriceRules(*problem, rules, question.effort);
  if (!price.ok()) return InFile(question.file, price.status());
  if (question.json) {
    out << "{\"with\": " << planner::StepPlanJson(price->with) << ", \"without\": " << planner::StepPlanJson(price->without)
        << "}\n";
    return absl::OkStatus();
  }
  Table table({"", "STEP PEAK", "SAVED", "REPLAY", "KEEPS THE LIMIT"});
  const auto add = [&](const std::string& name, const planner::StepPlan& plan) {
    table.Add({name, FormatBytes(plan.step_peak_bytes), FormatBytes(plan.saved_bytes), FormatSeconds(plan.replay_seconds),
               plan.feasible ? "yes" : "no"});
  };
  add("with the wishes", price->with);
  add("without", price->without);
  table.Print(out);
  return absl::OkStatus();
}

}  // namespace tidetape::ctl
