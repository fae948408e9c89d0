#include "server/questions/job_queries.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "net/error_info.h"
#include "planner/io/problem_io.h"
#include "planner/planner.h"
#include "server/messages/plan_message.h"
#include "server/questions/plan_explanation.h"

namespace tidetape::server {
namespace {

absl::StatusOr<std::shared_ptr<const v1::Plan>> Committed(const Job& job) {
  auto plan = job.committed();
  if (plan != nullptr) return plan;
  const std::string waiting_for = job.Summary().waiting_for();
  return net::WithErrorInfo(
      absl::FailedPreconditionError(absl::StrCat("job '", job.name(), "' has no plan yet",
                                                 waiting_for.empty() ? "" : absl::StrCat("; it waits for ", waiting_for))),
      "JOB_NOT_READY", {{"job", job.name()}, {"waiting_for", waiting_for}});
}

void FillStepFrontier(const planner::PlanningProblem& problem, const std::vector<planner::FrontierPoint>& points,
                      const v1::Plan* committed, v1::GetFrontierResponse& response) {
  for (const auto& point : points) *response.add_points() = planner::ToProto(point);
  response.set_largest_peak_bytes(points.front().bytes);
  response.set_least_peak_bytes(points.back().bytes);
  if (committed == nullptr) return;
  response.mutable_current()->set_bytes(committed->step_peak_bytes() + committed->headroom_bytes());
  response.mutable_current()->set_replay_seconds(committed->replay_seconds());
}

// The block's own frontier, or its options where it brought those instead of a tape.
absl::StatusOr<std::vector<planner::FrontierPoint>> FrontierOfBlock(const planner::PlanningProblem& problem, int32_t block) {
  const planner::BlockInstance& instance = problem.blocks[block];
  if (instance.options.empty()) return planner::BlockFrontier(problem.tapes[instance.tape]);
  std::vector<planner::FrontierPoint> points;
  for (const planner::BlockOption& option : instance.options) points.push_back({option.saved_bytes, option.seconds, {}});
  std::sort(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return points;
}

}  // namespace

absl::Status CheckBlock(const Job& job, int32_t block, size_t blocks) {
  if (block >= 0 && static_cast<size_t>(block) < blocks) return absl::OkStatus();
  return net::WithErrorInfo(
      absl::InvalidArgumentError(absl::StrCat("job '", job.name(), "' has no block ", block, "; use 0 to ", blocks - 1)),
      "INVALID_FIELD", {{"job", job.name()}, {"field", "block"}});
}

absl::StatusOr<v1::GetPlanResponse> AnswerGetPlan(const Job& job, const v1::GetPlanRequest& request) {
  v1::GetPlanResponse response;
  if (request.has_generation()) {
    auto kept = job.PlanOf(request.generation());
    if (!kept.ok()) return kept.status();
    *response.mutable_plan() = *std::move(kept);
    return response;
  }
  const auto plan = Committed(job);
  if (!plan.ok()) return plan.status();
  *response.mutable_plan() = **plan;
  return response;
}

absl::StatusOr<v1::ListPlansResponse> AnswerListPlans(const Job& job) {
  auto plans = job.Plans();
  if (!plans.ok()) return plans.status();
  v1::ListPlansResponse response;
  for (v1::Plan& plan : *plans) {
    plan.clear_blocks();
    *response.add_plans() = std::move(plan);
  }
  return response;
}

absl::StatusOr<CurrentPlanInput> CurrentPlan(Job& job) {
  auto plan = Committed(job);
  if (!plan.ok()) return plan.status();
  auto input = job.PeekPlanningInput();
  if (!input.ok()) return input.status();
  if (StructureHashes(**plan) != input->structure_hashes) {
    return net::WithErrorInfo(
        absl::FailedPreconditionError(absl::StrCat("job '", job.name(), "' runs other blocks than generation ",
                                                   (*plan)->generation(), " was made for; a new plan follows")),
        "OTHER_BLOCKS", {{"job", job.name()}, {"generation", absl::StrCat((*plan)->generation())}});
  }
  return CurrentPlanInput{*std::move(plan), *std::move(input)};
}

absl::StatusOr<v1::GetProblemResponse> AnswerGetProblem(Job& job) {
  const auto input = job.PeekPlanningInput();
  if (!input.ok()) return input.status();
  v1::GetProblemResponse response;
  *response.mutable_problem() = planner::ToProto(input->problem);
  return response;
}

absl::StatusOr<v1::GetFrontierResponse> AnswerGetFrontier(Job& job, const v1::GetFrontierRequest& request) {
  const auto input = job.PeekPlanningInput();
  if (!input.ok()) return input.status();
  const planner::PlanningProblem& problem = input->problem;
  v1::GetFrontierResponse response;
  response.set_memory_limit_bytes(LimitToMessage(problem.memory_limit_bytes));
  const auto step = planner::StepFrontier(problem);
  if (!step.ok()) return step.status();
  FillStepFrontier(problem, *step, input->committed.get(), response);
  if (!request.has_block()) return response;

  if (absl::Status status = CheckBlock(job, request.block(), problem.blocks.size()); !status.ok()) return status;
  const auto points = FrontierOfBlock(problem, request.block());
  if (!points.ok()) return points.status();
  response.clear_points();
  response.clear_current();
  for (const auto& point : *points) *response.add_points() = planner::ToProto(point);
  if (input->committed != nullptr && request.block() < input->committed->blocks_size()) {
    const v1::BlockPlan& plan = input->committed->blocks(request.block());
    response.mutable_current()->set_bytes(plan.saved_bytes());
    response.mutable_current()->set_replay_seconds(plan.replay_seconds());
    *response.mutable_current()->mutable_saved() = plan.saved();
  }
  return response;
}

absl::StatusOr<v1::ExplainPlanResponse> AnswerExplainPlan(Job& job, const v1::ExplainPlanRequest& request) {
  const auto current = CurrentPlan(job);
  if (!current.ok()) return current.status();
  const planner::PlanningProblem& problem = current->input.problem;
  const v1::Plan& plan = *current->plan;
  if (request.has_block()) {
    if (absl::Status status = CheckBlock(job, request.block(), problem.blocks.size()); !status.ok()) return status;
  }
  v1::ExplainPlanResponse response;
  // Layers of one kind mostly share their tape and their plan.
  std::map<std::tuple<int32_t, std::vector<int32_t>, std::vector<int32_t>>, std::vector<v1::ExplainedValue>> explained;
  for (int k = 0; k < plan.blocks_size(); ++k) {
    if (request.has_block() && request.block() != k) continue;
    v1::ExplainedBlock* block = response.add_blocks();
    block->set_block(k);
    block->set_name(problem.blocks[k].name);
    if (!problem.blocks[k].options.empty()) continue;  // options have no values
    const int32_t tape = problem.blocks[k].tape;
    const std::vector<int32_t> saved(plan.blocks(k).saved().begin(), plan.blocks(k).saved().end());
    const std::vector<int32_t> moved(plan.blocks(k).moved().begin(), plan.blocks(k).moved().end());
    auto it = explained.find({tape, saved, moved});
    if (it == explained.end()) {
      auto values = ExplainBlock(problem.tapes[tape], problem.blocks[k], saved, moved);
      if (!values.ok()) return values.status();
      it = explained.emplace(std::make_tuple(tape, saved, moved), *std::move(values)).first;
    }
    block->mutable_values()->Add(it->second.begin(), it->second.end());
  }
  return response;
}

}  // namespace tidetape::server
