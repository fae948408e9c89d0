// Answers about plans that nobody has committed.
#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "net/error_info.h"
#include "planner/io/problem_io.h"
#include "planner/job/merge_ranks.h"
#include "planner/planner.h"
#include "planner/questions/policies.h"
#include "server/job/known_runs.h"
#include "server/job/pins.h"
#include "server/messages/plan_message.h"
#include "server/messages/validate.h"
#include "server/questions/job_queries.h"

namespace tidetape::server {
namespace {

// Beyond every machine; keeps sums of bases within int64.
constexpr int64_t kLargestAddition = int64_t{1} << 50;

// What the planner visits in a second at least, on a machine that does other things, too.
constexpr double kVisitsPerSecond = 5e6;

// The part of the effort that each of `plans` plans can have, with half of the time left for the rest of the answer. No less than
// the job's own plans have, unless the time is too short.
planner::Effort EffortWithin(const v1::Effort& effort, const TimeLeft& time_left, int plans) {
  const double most = std::max(0.0, absl::ToDoubleSeconds(time_left())) / 2 / plans * kVisitsPerSecond;
  const int64_t visits = std::max(effort.visits(), planner::kPlanVisits);
  return {.visits = static_cast<int64_t>(std::min(static_cast<double>(visits), std::min(most, 1e12))),
          .gap_of_full_replay = effort.gap()};
}

absl::Status ValidateEffort(const Job& job, const v1::Effort& effort) {
  if (effort.visits() >= 0 && effort.gap() >= 0) return absl::OkStatus();  // false for NaN
  return net::WithErrorInfo(absl::InvalidArgumentError("effort.visits and effort.gap must not be negative"), "INVALID_FIELD",
                            {{"job", job.name()}, {"field", "effort"}});
}

absl::Status CheckTime(const TimeLeft& time_left) {
  if (time_left() > absl::ZeroDuration()) return absl::OkStatus();
  return absl::DeadlineExceededError("the answer takes longer than the caller waits; ask with a longer timeout or less effort");
}

// What a question supposes.
struct WhatIf {
  std::optional<int64_t> memory_limit_bytes;
  google::protobuf::RepeatedPtrField<v1::Pin> pins;
  v1::Effort effort;
};

// The job's problem under the limit; the pins are checked and not applied.
absl::StatusOr<PlanningInput> InputFor(Job& job, const WhatIf& what_if) {
  v1::Constraints constraints;
  if (what_if.memory_limit_bytes.has_value()) constraints.set_memory_limit_bytes(*what_if.memory_limit_bytes);
  *constraints.mutable_pins() = what_if.pins;
  if (absl::Status status = ValidateConstraints(job.name(), constraints); !status.ok()) return status;
  if (absl::Status status = ValidateEffort(job, what_if.effort); !status.ok()) return status;
  auto input = job.PeekPlanningInput();
  if (input.ok() && what_if.memory_limit_bytes.has_value()) {
    input->problem.memory_limit_bytes = planner::LimitForPlanner(*what_if.memory_limit_bytes);
  }
  return input;
}

template <typename Request>
std::optional<int64_t> LimitOf(const Request& request) {
  return request.has_memory_limit_bytes() ? std::optional(request.memory_limit_bytes()) : std::nullopt;
}

// As in SimulatePlan: a plan that nobody committed.
v1::Plan Uncommitted(const Job& job, const PlanningInput& input, const planner::PlanningProblem& problem,
                     const planner::StepPlan& plan) {
  v1::Plan message = PlanToMessage(problem, input.structure_hashes, plan);
  message.set_job(job.name());
  message.set_incarnation(input.incarnation);
  message.set_residual_bytes(input.residual_bytes);
  message.set_reason("what if; not committed");
  return message;
}

// InvalidArgument where a base would fall below 0.
absl::Status CheckAddition(const Job& job, int64_t added, const planner::PlanningProblem& problem) {
  if (added < -kLargestAddition || added > kLargestAddition) {
    return absl::InvalidArgumentError(absl::StrCat("additional_base_bytes = ", added, " is out of range"));
  }
  std::vector<std::pair<std::string, int64_t>> bases = {{"the head's peak", problem.head_peak_bytes},
                                                        {"the optimizer's peak", problem.optimizer_peak_bytes}};
  for (const planner::BlockInstance& block : problem.blocks) {
    bases.emplace_back(absl::StrCat("the forward base of ", block.name), block.forward_base_bytes);
    bases.emplace_back(absl::StrCat("the backward base of ", block.name), block.backward_base_bytes);
  }
  for (const auto& [name, bytes] : bases) {
    if (bytes + added < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("additional_base_bytes = ", added, ": job '", job.name(), "' has only ", bytes, " bytes in ", name));
    }
  }
  return absl::OkStatus();
}

// Applies the pins one after the other. InvalidArgument, with some labels that there are, for one that fits no value.
absl::StatusOr<int> ApplyAllPins(const Job& job, const google::protobuf::RepeatedPtrField<v1::Pin>& pins,
                                 planner::PlanningProblem& problem) {
  for (const v1::Pin& pin : pins) {
    google::protobuf::RepeatedPtrField<v1::Pin> alone;
    *alone.Add() = pin;
    planner::PlanningProblem tried = problem;
    if (ApplyPins(alone, tried) > 0) continue;
    std::string example;
    for (const planner::BlockTape& tape : problem.tapes) {
      for (const planner::Storage& storage : tape.storages) {
        if (example.empty() && storage.kind == planner::StorageKind::kIntermediate) example = storage.label;
      }
    }
    return net::WithErrorInfo(
        absl::InvalidArgumentError(absl::StrCat("the pin of '", pin.label_glob(), "' in '", pin.block_glob(),
                                                "' fits no value of job '", job.name(), "'; labels look like '", example, "'")),
        "INVALID_FIELD", {{"job", job.name()}, {"field", "pins"}});
  }
  return ApplyPins(pins, problem);
}

}  // namespace

absl::StatusOr<v1::SimulatePlanResponse> AnswerSimulatePlan(Job& job, const v1::SimulatePlanRequest& request,
                                                            const TimeLeft& time_left) {
  auto input = InputFor(job, {LimitOf(request), request.pins(), request.effort()});
  if (!input.ok()) return input.status();
  planner::PlanningProblem& problem = input->problem;
  ApplyPins(request.pins(), problem);
  if (absl::Status status = CheckAddition(job, request.additional_base_bytes(), problem); !status.ok()) return status;
  AddToBases(request.additional_base_bytes(), problem);
  const auto plan = planner::PlanStepClosely(problem, EffortWithin(request.effort(), time_left, 1));
  if (!plan.ok()) return plan.status();
  v1::SimulatePlanResponse response;
  *response.mutable_plan() = Uncommitted(job, *input, problem, *plan);
  return response;
}

absl::StatusOr<v1::ComparePoliciesResponse> AnswerComparePolicies(Job& job, const v1::ComparePoliciesRequest& request,
                                                                  const TimeLeft& time_left) {
  const auto input = InputFor(job, {LimitOf(request), {}, request.effort()});
  if (!input.ok()) return input.status();
  v1::ComparePoliciesResponse response;
  response.set_memory_limit_bytes(LimitToMessage(input->problem.memory_limit_bytes));
  int left = std::size(planner::kPolicies);
  for (const planner::Policy policy : planner::kPolicies) {
    if (absl::Status status = CheckTime(time_left); !status.ok()) return status;
    const auto theirs = planner::PlanByPolicy(input->problem, policy);
    if (!theirs.ok()) return theirs.status();
    planner::PlanningProblem same_peak = input->problem;
    same_peak.memory_limit_bytes = std::max<int64_t>(1, theirs->step_peak_bytes);
    const auto ours = planner::PlanStepClosely(same_peak, EffortWithin(request.effort(), time_left, left--));
    if (!ours.ok()) return ours.status();
    v1::PolicyOutcome* outcome = response.add_policies();
    outcome->set_policy(planner::PolicyName(policy));
    outcome->set_step_peak_bytes(theirs->step_peak_bytes);
    outcome->set_replay_seconds(theirs->replay_seconds);
    outcome->set_keeps_limit(theirs->feasible);
    if (ours->feasible) outcome->set_planned_seconds(ours->replay_seconds);
  }
  return response;
}

absl::StatusOr<v1::PricePinsResponse> AnswerPricePins(Job& job, const v1::PricePinsRequest& request, const TimeLeft& time_left) {
  if (request.pins().empty()) {
    return net::WithErrorInfo(absl::InvalidArgumentError("name at least one pin whose price is asked for"), "INVALID_FIELD",
                              {{"job", job.name()}, {"field", "pins"}});
  }
  const auto input = InputFor(job, {LimitOf(request), request.pins(), request.effort()});
  if (!input.ok()) return input.status();
  planner::PlanningProblem pinned = input->problem;
  const auto values = ApplyAllPins(job, request.pins(), pinned);
  if (!values.ok()) return values.status();
  const auto with = planner::PlanStepClosely(pinned, EffortWithin(request.effort(), time_left, 2));
  if (!with.ok()) return with.status();
  if (absl::Status status = CheckTime(time_left); !status.ok()) return status;
  const auto without = planner::PlanStepClosely(input->problem, EffortWithin(request.effort(), time_left, 1));
  if (!without.ok()) return without.status();
  v1::PricePinsResponse response;
  *response.mutable_with() = Uncommitted(job, *input, pinned, *with);
  *response.mutable_without() = Uncommitted(job, *input, input->problem, *without);
  response.set_pinned_values(*values);
  return response;
}

absl::StatusOr<v1::FindBlockPlanResponse> AnswerFindBlockPlan(Job& job, const v1::FindBlockPlanRequest& request,
                                                              const TimeLeft& time_left) {
  const auto input = InputFor(job, {std::nullopt, {}, request.effort()});
  if (!input.ok()) return input.status();
  const planner::PlanningProblem& problem = input->problem;
  if (absl::Status status = CheckBlock(job, request.block(), problem.blocks.size()); !status.ok()) return status;
  const planner::BlockInstance& block = problem.blocks[request.block()];
  if (!block.options.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("block ", request.block(), " (", block.name, ") has options instead of a tape"));
  }
  const auto fastest = planner::FastestBlockPlan(problem.tapes[block.tape], request.saved_bytes_limit(),
                                                 EffortWithin(request.effort(), time_left, 1));
  if (!fastest.ok()) return fastest.status();
  v1::FindBlockPlanResponse response;
  *response.mutable_point() = planner::ToProto(fastest->point);
  response.set_lower_bound_seconds(fastest->lower_bound_seconds);
  return response;
}

}  // namespace tidetape::server
