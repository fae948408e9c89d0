#include "server/plan_activation.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/merge_ranks.h"
#include "planner/site_plan.h"
#include "server/log.h"
#include "server/plan_message.h"

namespace tidetape::server {

PlanActivation::PlanActivation(const Options& options, Store* store, Clock* clock, Worker* planning_thread)
    : options_(options), store_(store), clock_(clock), planning_thread_(planning_thread), policy_(options.thresholds) {}

void PlanActivation::Consider(std::shared_ptr<Job> job) {
  if (waiting_.exchange(true)) return;
  const bool posted = planning_thread_->Post([self = shared_from_this(), job] {
    // Before the look, so that what changes during it brings another one.
    self->waiting_ = false;
    self->Run(*job);
  });
  if (posted) return;
  waiting_ = false;
  job->SetPlanningStatus(absl::ResourceExhaustedError("too many jobs wait for the planner; the next report tries again"));
}

absl::StatusOr<std::string> PlanActivation::Reason(const PlanningInput& input) {
  if (!input.forced_reason.empty()) return input.forced_reason;
  if (!input.newly_measured) return std::string();
  if (!follows_) TakeUp(*input.committed, input.problem);
  return policy_.ReasonToReplan(input.problem, input.structure_hashes);
}

void PlanActivation::TakeUp(const v1::Plan& plan, planner::PlanningProblem problem) {
  std::vector<uint64_t> structure_hashes;
  for (const v1::BlockPlan& block : plan.blocks()) structure_hashes.push_back(block.structure_hash());
  problem.memory_limit_bytes = planner::LimitForPlanner(plan.memory_limit_bytes());
  policy_.Follow(problem, structure_hashes, PlanFromMessage(plan));
  follows_ = true;
}

void PlanActivation::Follow(const PlanningInput& input, const planner::StepPlan& plan) {
  policy_.Follow(input.problem, input.structure_hashes, plan);
  follows_ = true;
}

void PlanActivation::Run(Job& job) {
  const absl::StatusOr<PlanningInput> input = job.MakePlanningInput();
  if (absl::IsFailedPrecondition(input.status())) return;  // still gathering; the job's summary says what is missing
  absl::Status status = input.status();
  if (status.ok()) {
    const absl::StatusOr<std::string> reason = Reason(*input);
    status = reason.status();
    if (status.ok() && !reason->empty()) status = Commit(job, *input, *reason);
  }
  if (!status.ok()) spdlog::error("planning failed: {} job={}", std::string(status.message()), job.name());
  job.SetPlanningStatus(status);
}

absl::Status PlanActivation::Commit(Job& job, const PlanningInput& input, const std::string& reason) {
  const absl::Time start = clock_->Now();
  const absl::StatusOr<planner::StepPlan> planned = options_.plan_step(input.problem);
  if (!planned.ok()) return planned.status();
  v1::Plan plan = PlanToMessage(input.problem, input.structure_hashes, *planned);
  if (input.committed != nullptr && !input.recommit && input.committed->etag() == plan.etag()) {
    Follow(input, *planned);
    job.Confirm(input);
    return absl::OkStatus();
  }
  plan.set_job(job.name());
  plan.set_incarnation(input.incarnation);
  plan.set_generation(input.next_generation);
  plan.set_reason(reason);
  plan.set_committed_unix_micros(absl::ToUnixMicros(clock_->Now()));
  plan.set_revision(input.revision);
  const absl::Status committed = store_->CommitPlan(plan);
  if (absl::IsFailedPrecondition(committed)) {
    // An earlier commit whose answer was lost has taken the generation: that plan is the job's.
    follows_ = false;
    return job.TakeUpStoredPlan();
  }
  if (!committed.ok()) return committed;
  Follow(input, *planned);
  if (!job.Adopt(input, plan)) return absl::OkStatus();
  std::string text =
      absl::StrCat("committed generation ", plan.generation(), ": ", reason, "; step peak ", plan.step_peak_bytes(),
                   " bytes, replay ", plan.replay_seconds(), " s, planned in ", absl::FormatDuration(clock_->Now() - start));
  if (!plan.feasible()) {
    absl::StrAppend(&text, "; the limit of ", plan.memory_limit_bytes(), " bytes cannot be held: the least possible step peak is ",
                    plan.least_peak_bytes(), " bytes, in ", planner::DescribePeakHolder(input.problem, planned->least_peak_holder));
  }
  job.AddEvent(text, -1, plan.generation());
  return absl::OkStatus();
}

}  // namespace tidetape::server
