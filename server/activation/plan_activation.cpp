#include "server/activation/plan_activation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/io/problem_io.h"
#include "planner/job/merge_ranks.h"
#include "planner/job/site_plan.h"
#include "server/common/log.h"
#include "server/job/known_runs.h"
#include "server/messages/plan_message.h"
#include "server/text/units.h"
#include "server/text/words.h"

namespace tidetape::server {
namespace {

// The plan of the generation, or one that repeats it.
bool IsPlanOf(const v1::Plan& plan, int64_t generation) {
  return plan.generation() == generation || plan.repeats_generation() == generation;
}

constexpr int kRememberedTimes = 2;

PlanCause CauseOf(planner::ReplanCause cause) {
  switch (cause) {
    case planner::ReplanCause::kNone:
    case planner::ReplanCause::kFirst:
      return PlanCause::kFirst;
    case planner::ReplanCause::kLimit:
      return PlanCause::kLimit;
    case planner::ReplanCause::kBlocks:
      return PlanCause::kBlocks;
    case planner::ReplanCause::kOverLimit:
      return PlanCause::kOverLimit;
    case planner::ReplanCause::kPeak:
      return PlanCause::kPeak;
    case planner::ReplanCause::kCosts:
      return PlanCause::kCosts;
  }
  return PlanCause::kFirst;
}

}  // namespace

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

absl::StatusOr<PlanActivation::Reason> PlanActivation::ReasonToPlan(const PlanningInput& input) {
  if (!input.forced_reason.empty()) return Reason{input.forced_cause, input.forced_reason};
  if (!input.newly_measured) return Reason();
  if (!follows_) TakeUp(*input.committed, input.problem);
  absl::StatusOr<planner::ReplanReason> reason = policy_.ReasonToReplan(input.problem, input.structure_hashes);
  if (!reason.ok()) return reason.status();
  if (!reason->text.empty()) return Reason{CauseOf(reason->cause), std::move(reason->text)};
  return Reason{PlanCause::kPacing, pacing_.Reason(input.links, *input.committed)};
}

void PlanActivation::TakeUp(const v1::Plan& plan, planner::PlanningProblem problem) {
  problem.memory_limit_bytes = planner::LimitForPlanner(plan.memory_limit_bytes());
  policy_.Follow(problem, StructureHashes(plan), PlanFromMessage(plan));
  follows_ = true;
}

void PlanActivation::Follow(const PlanningInput& input, const planner::StepPlan& plan) {
  policy_.Follow(input.problem, input.structure_hashes, plan);
  follows_ = true;
}

void PlanActivation::Run(Job& job) {
  const absl::StatusOr<PlanningInput> input = job.MakePlanningInput();
  // Still gathering; the job's summary says what is missing.
  if (absl::IsFailedPrecondition(input.status())) return StartWarm(job);
  const absl::Status status = input.ok() ? Review(job, *input) : input.status();
  if (!status.ok()) spdlog::error("planning failed: {} job={}", std::string(status.message()), job.name());
  job.SetPlanningStatus(status);
}

void PlanActivation::StartWarm(Job& job) {
  if (options_.known_run_bytes <= 0) return;
  absl::StatusOr<PlanningInput> input = job.MakeEarlyInput();
  if (!input.ok() || input->frozen_generation != 0) return;
  const absl::StatusOr<v1::KnownRun> known = store_->GetKnownRun(input->run_key);
  if (absl::IsNotFound(known.status())) return;
  absl::Status status = known.status();
  if (status.ok()) {
    planner::PlanningProblem raised = *input->measured;
    status = RaiseToKnown(planner::FromProto(known->problem()), raised);
    if (status.ok()) {
      UseMeasured(std::move(raised), std::max(input->residual_bytes, known->residual_bytes()), *input);
      const std::string reason = absl::StrCat("a warm start: job '", known->job(), "' ran the same blocks at the same shapes");
      status = Commit(job, *input, {PlanCause::kWarmStart, reason});
    }
    // So that it is kept while it is of use.
    if (status.ok()) status = store_->PutKnownRun(input->run_key, *known, clock_->Now(), options_.known_run_bytes);
  }
  if (!status.ok()) spdlog::warn("no warm start: {} job={}", std::string(status.message()), job.name());
}

void PlanActivation::Remember(const Job& job, const PlanningInput& input) {
  const std::shared_ptr<const v1::Plan> committed = job.committed();
  if (options_.known_run_bytes <= 0 || committed == nullptr || committed->incarnation() != input.incarnation) return;
  if (remembered_generation_ != committed->generation()) remembered_times_ = 0;
  remembered_generation_ = committed->generation();
  if (remembered_times_++ >= kRememberedTimes) return;
  v1::KnownRun run;
  *run.mutable_problem() = planner::ToProto(*input.measured);
  run.mutable_problem()->clear_memory_limit_bytes();
  run.set_plain_step_seconds(input.plain_step_seconds);
  run.set_job(job.name());
  run.set_residual_bytes(input.residual_bytes);
  const absl::Status status = store_->PutKnownRun(input.run_key, run, clock_->Now(), options_.known_run_bytes);
  if (!status.ok()) spdlog::warn("the run is not remembered: {} job={}", std::string(status.message()), job.name());
}

absl::Status PlanActivation::Review(Job& job, const PlanningInput& input) {
  if (input.frozen_generation != 0) {
    if (input.committed != nullptr && !input.recommit && IsPlanOf(*input.committed, input.frozen_generation)) {
      job.Confirm(input);
      return absl::OkStatus();
    }
    absl::StatusOr<v1::Plan> frozen = job.PlanOf(input.frozen_generation);
    if (!frozen.ok() && !absl::IsNotFound(frozen.status())) return frozen.status();
    if (frozen.ok() && StructureHashes(*frozen) == input.structure_hashes) return CommitAgain(job, input, *std::move(frozen));
  }
  const absl::StatusOr<Reason> reason = ReasonToPlan(input);
  if (!reason.ok()) return reason.status();
  if (!reason->text.empty()) {
    if (absl::Status status = Commit(job, input, *reason); !status.ok()) return status;
  }
  if (!reason->text.empty() || input.newly_measured) Remember(job, input);
  return absl::OkStatus();
}

absl::StatusOr<bool> PlanActivation::Publish(Job& job, const PlanningInput& input, const Reason& reason, v1::Plan& plan) {
  plan.set_job(job.name());
  plan.set_incarnation(input.incarnation);
  plan.set_generation(input.next_generation);
  plan.set_reason(reason.text);
  plan.set_committed_unix_micros(absl::ToUnixMicros(clock_->Now()));
  plan.set_revision(input.revision);
  if (plan.has_pacing()) plan.mutable_pacing()->set_generation(plan.generation());
  const absl::Status committed = store_->CommitPlan(plan);
  if (absl::IsFailedPrecondition(committed)) {
    // An earlier commit whose answer was lost has taken the generation: that plan is the job's.
    follows_ = false;
    if (absl::Status status = job.TakeUpStoredPlan(); !status.ok()) return status;
    return false;
  }
  if (!committed.ok()) return committed;
  options_.committed(reason.cause);
  return job.Adopt(input, plan);
}

absl::Status PlanActivation::CommitAgain(Job& job, const PlanningInput& input, v1::Plan frozen) {
  frozen.set_repeats_generation(input.frozen_generation);
  follows_ = false;
  const Reason reason = {PlanCause::kFrozen, absl::StrCat("an operator froze the plan of generation ", input.frozen_generation)};
  const absl::StatusOr<bool> published = Publish(job, input, reason, frozen);
  if (!published.ok()) return published.status();
  if (*published) {
    job.AddEvent(absl::StrCat("committed generation ", frozen.generation(), ": ", reason.text, "; it repeats that plan"), -1,
                 frozen.generation());
  }
  return absl::OkStatus();
}

absl::Status PlanActivation::Commit(Job& job, const PlanningInput& input, const Reason& reason) {
  const absl::Time start = clock_->Now();
  const absl::StatusOr<planner::StepPlan> planned = options_.plan_step(input.problem);
  if (!planned.ok()) return planned.status();
  v1::Plan plan = PlanToMessage(input.problem, input.structure_hashes, *planned);
  plan.set_residual_bytes(input.residual_bytes);
  pacing_.Fill(input.links, input.committed.get(), plan);
  if (input.committed != nullptr && !input.recommit && input.committed->etag() == plan.etag()) {
    Follow(input, *planned);
    job.Confirm(input);
    return absl::OkStatus();
  }
  const absl::StatusOr<bool> published = Publish(job, input, reason, plan);
  if (!published.ok()) return published.status();
  if (!*published) return absl::OkStatus();
  Follow(input, *planned);
  std::string text = absl::StrCat("committed generation ", plan.generation(), ": ", reason.text, "; step peak ", PeakText(plan),
                                  ", replay ", FormatSeconds(plan.replay_seconds()), ", planned in ",
                                  FormatSeconds(absl::ToDoubleSeconds(clock_->Now() - start)));
  if (plan.has_pacing()) absl::StrAppend(&text, "; collectives: ", PacingText(plan.pacing()));
  if (!plan.feasible()) {
    absl::StrAppend(&text, "; the limit of ", FormatBytes(plan.memory_limit_bytes()),
                    " cannot be held: the least possible step peak is ", FormatBytes(plan.least_peak_bytes()), ", in ",
                    planner::DescribePeakHolder(input.problem, planned->least_peak_holder));
  }
  job.AddEvent(text, -1, plan.generation());
  return absl::OkStatus();
}

}  // namespace tidetape::server
