// Proposes and commits the plans of one job.
//
// When something changes, Consider() puts the job on the planning thread: there its measurements are merged, the plan in force is
// judged, and where a new one is needed it is computed, committed to the store and, only then, sent to all ranks as a candidate.
// The ranks agree among themselves when to switch. After a restart of the server the policy takes up the committed plan, so that a
// restart by itself changes no plan.
//
// An operator may freeze a generation: its plan stays in force, and is committed again, under a new generation, where another one
// is. A start of the job with other blocks is planned for as usual.
//
// A plan carries the pacing of the job's collectives, under its own generation; a new one follows where the links are measured for
// the first time, or another pacing would be faster.
//
// Before the ranks have measured enough to plan by, a run that the store knows of the same blocks at the same shapes may be planned
// from (a warm start): once every rank has measured one steady step, so that the optimizer's state exists, and by the larger of
// what it measured and what the earlier run did. The next measurements judge that plan like any other. Each plan's measurements go
// to the store as a known run.
//
// A generation is one above everything that the store or any rank of the job ever told of, so generations never go back, also not
// when the server restarts with an empty store. A plan with the etag of the committed one is not committed again, unless a rank
// holds a generation above the server's.
#ifndef TIDETAPE_SERVER_ACTIVATION_PLAN_ACTIVATION_H_
#define TIDETAPE_SERVER_ACTIVATION_PLAN_ACTIVATION_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/job/replan_policy.h"
#include "planner/planner.h"
#include "server/activation/pacing_policy.h"
#include "server/common/clock.h"
#include "server/common/worker.h"
#include "server/job/job.h"
#include "server/job/plan_cause.h"
#include "server/store/store.h"

namespace tidetape::server {

class PlanActivation : public std::enable_shared_from_this<PlanActivation> {
 public:
  struct Options {
    // When measurements make a committed plan worth another look; see ReplanThresholds for the figures.
    planner::ReplanThresholds thresholds;
    // Computes the plan; tests replace it.
    std::function<absl::StatusOr<planner::StepPlan>(const planner::PlanningProblem&)> plan_step = planner::PlanStep;
    // Is told why each plan was made, once it is committed.
    std::function<void(PlanCause)> committed = [](PlanCause) {};
    // The store keeps as many bytes of known runs, those that were used last. 0: none, and no warm starts.
    int64_t known_run_bytes = int64_t{256} << 20;
  };

  // All outlive the activation.
  PlanActivation(const Options& options, Store* store, Clock* clock, Worker* planning_thread);

  // Looks at the job, always the same one, soon and on the planning thread; calls while it waits there are one. Safe from any
  // thread.
  void Consider(std::shared_ptr<Job> job);

 private:
  // Why a new plan is needed; an empty text where it is not.
  struct Reason {
    PlanCause cause = PlanCause::kFirst;
    std::string text;
  };

  void Run(Job& job);
  absl::StatusOr<Reason> ReasonToPlan(const PlanningInput& input);
  // Plans from an earlier run where the store knows one. Errors are logged: the job goes on as without it.
  void StartWarm(Job& job);
  // Puts what was measured into the store, twice a generation: when the plan is made, and once steps have run under it.
  void Remember(const Job& job, const PlanningInput& input);
  void TakeUp(const v1::Plan& plan, planner::PlanningProblem problem);
  // Judges the plan in force, and commits another one where that is needed.
  absl::Status Review(Job& job, const PlanningInput& input);
  void Follow(const PlanningInput& input, const planner::StepPlan& plan);
  absl::Status Commit(Job& job, const PlanningInput& input, const Reason& reason);
  absl::Status CommitAgain(Job& job, const PlanningInput& input, v1::Plan frozen);
  // Makes `plan` the job's. False where it is not, because the store has another one or the job was started anew meanwhile.
  absl::StatusOr<bool> Publish(Job& job, const PlanningInput& input, const Reason& reason, v1::Plan& plan);

  const Options options_;
  Store* const store_;
  Clock* const clock_;
  Worker* const planning_thread_;
  std::atomic<bool> waiting_ = false;
  // Of the planning thread only.
  planner::ReplanPolicy policy_;
  PacingPolicy pacing_;
  bool follows_ = false;  // the policy watches a plan
  int64_t remembered_generation_ = 0;
  int remembered_times_ = 0;  // of that generation
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_ACTIVATION_PLAN_ACTIVATION_H_
