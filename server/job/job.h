// The state of one job: its ranks, tapes, measurements, and the plan in force.
//
// Invariants:
//  - There is one current incarnation. A rank belongs to it or is refused. When a newer one appears, the streams, profiles and
//    generations of the older are forgotten; tapes, costs and constraints stay.
//  - A rank has at most one stream; messages of any other stream are refused.
//  - committed() belongs to the current incarnation. Its generation is above every generation that the store or a rank of the job
//    ever told of.
//  - What a `stored` callback was told OK for is in the store, and Restore() finds it there.
//
// Thread-safe. Connect, AddTape, SetConstraints, End, Sweep and TakeUpStoredPlan may block on the store's I/O; none does so while
// it holds the lock that reports need.
#ifndef TIDETAPE_SERVER_JOB_JOB_H_
#define TIDETAPE_SERVER_JOB_JOB_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "planner/job/measurement.h"
#include "planner/model/problem.h"
#include "planner/pacing.h"
#include "server/common/clock.h"
#include "server/job/event_log.h"
#include "server/job/job_measurements.h"
#include "server/job/job_snapshot.h"
#include "server/job/peak_watch.h"
#include "server/job/plan_cause.h"
#include "server/job/rank_channel.h"
#include "server/job/recent_median.h"
#include "server/store/store.h"
#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::server {

// What a plan of a job is made from, at one moment.
struct PlanningInput {
  std::string incarnation;
  planner::PlanningProblem problem;  // all ranks merged, residual and constraints applied
  // The same without residual and pins, and how the store names it.
  std::shared_ptr<const planner::PlanningProblem> measured;
  KnownRunKey run_key;
  // Of a step without its replay, the slowest rank; 0 before the first report.
  double plain_step_seconds = 0;
  v1::Constraints constraints;
  // In all bases of the problem: what measured peaks had above those predicted.
  int64_t residual_bytes = 0;
  std::vector<uint64_t> structure_hashes;     // one a block
  std::shared_ptr<const v1::Plan> committed;  // null before the first plan of the incarnation
  std::optional<planner::LinkReport> links;   // of the collectives, all ranks merged; none where not all have measured them
  int64_t next_generation = 1;
  // Why a new plan is needed whatever the measurements say; empty where only they can tell.
  std::string forced_reason;
  PlanCause forced_cause = PlanCause::kFirst;
  // Commit even where the plan equals the committed one: a rank is ahead of it.
  bool recommit = false;
  // The generation whose plan an operator wants to stay in force; 0: plans follow the job.
  int64_t frozen_generation = 0;
  // Every rank has measured since the last input that said so.
  bool newly_measured = false;
  // Of constraints and tapes; see Job::Adopt.
  int64_t revision = 0;
};

// Puts measurements into an input, and makes its problem of them, of a residual and of its constraints' pins.
void UseMeasured(planner::PlanningProblem measured, int64_t residual_bytes, PlanningInput& input);

class Job : public std::enable_shared_from_this<Job> {
 public:
  // Called, from any thread and without locks, when something changed that may need a new plan.
  using ConsiderPlanning = std::function<void(std::shared_ptr<Job>)>;

  // `store` and `clock` outlive the job. Jobs live in shared pointers only.
  Job(std::string name, Store* store, Clock* clock, ConsiderPlanning consider_planning);

  const std::string& name() const { return name_; }
  EventLog& events() { return events_; }

  // Takes up what the store knows of the job.
  absl::Status Restore();

  // Told once what a message is worth: OK when the store has it. On any thread, also before the call returns; never where the call
  // itself returns an error. Must not block.
  using Stored = Store::Done;

  // Admits a rank; `hello` has passed ValidateHello. An earlier stream of the rank, or of an older incarnation, is closed.
  // FailedPrecondition for an incarnation that is not the newest, or that an operator has ended; InvalidArgument where the world
  // size is not the incarnation's.
  absl::StatusOr<v1::Welcome> Connect(const v1::Hello& hello, const std::shared_ptr<RankChannel>& channel, Stored stored);

  // A later Hello on the rank's stream: takes limit and generations anew.
  absl::Status Update(const v1::Hello& hello, const RankChannel* channel, Stored stored);

  // How a stream ended: the rank closed it in good order and of its own accord, or it broke off.
  enum class Parting { kGoodbye, kLost };
  void Disconnect(int32_t rank, const RankChannel* channel, Parting parting);

  // The following are messages of the rank's stream, validated by the caller; Aborted where the stream was replaced. A tape is in
  // the store when the call returns.
  absl::Status AddTape(int32_t rank, const RankChannel* channel, const v1::BlockTape& tape);
  absl::Status AddReport(int32_t rank, const RankChannel* channel, const v1::StepReport& report, Stored stored);
  absl::Status AddPlanHeld(int32_t rank, const RankChannel* channel, const v1::PlanHeld& held, Stored stored);
  absl::Status AddPlanActivated(int32_t rank, const RankChannel* channel, const v1::PlanActivated& activated, Stored stored);

  // `etag`: of the constraints that they replace, or empty. Aborted where others are in force; NotFound where the plan of
  // frozen_generation is not kept, FailedPrecondition where it is of other blocks than the job has now.
  absl::Status SetConstraints(const v1::Constraints& constraints, const std::string& etag = "");

  // An operator ends the job: all streams are closed, and the incarnation is refused from now on. A newer one starts it again.
  absl::Status End(const std::string& reason);

  // Looks after the job; call it every few seconds. Ends it once all its ranks have said goodbye, or when no rank was connected for
  // `silence`; plans again where planning failed, as while the store was away.
  absl::Status Sweep(absl::Duration silence);

  // When the job ended; the infinite future while it runs.
  absl::Time ended_at() const;

  // Closes all streams with this status.
  void CloseStreams(const absl::Status& status);

  // FailedPrecondition, naming what is missing, until every rank is connected with tapes and a steady profile.
  // InvalidArgument where the measurements do not fit together. For the activation: the next input is newly measured only after
  // another round of profiles.
  absl::StatusOr<PlanningInput> MakePlanningInput();

  // The same for questions: leaves it to the activation to judge the measurements.
  absl::StatusOr<PlanningInput> PeekPlanningInput();

  // Before the first plan, once every rank has measured a steady step at least: what an earlier run may confirm. FailedPrecondition
  // until then, and again until every rank has sent a newer profile.
  absl::StatusOr<PlanningInput> MakeEarlyInput();

  // The plan was committed to the store for this input; sends it to all ranks. False where the incarnation has changed meanwhile.
  bool Adopt(const PlanningInput& input, const v1::Plan& plan);

  // The store holds a plan that this job does not know, because the answer to its commit was lost: adopts it.
  absl::Status TakeUpStoredPlan();

  // The committed plan is still the right one for this input.
  void Confirm(const PlanningInput& input);

  // Why the last attempt to plan failed; OK clears it.
  void SetPlanningStatus(const absl::Status& status);

  // Null before the first plan of the incarnation.
  std::shared_ptr<const v1::Plan> committed() const;

  // The plans that the store keeps, newest first; of older starts of the job, too.
  absl::StatusOr<std::vector<v1::Plan>> Plans() const;

  // The one of this generation. NotFound where it is not kept.
  absl::StatusOr<v1::Plan> PlanOf(int64_t generation) const;

  // Runs that the store knows of the blocks that the input is of, used last first.
  absl::StatusOr<std::vector<v1::KnownRun>> KnownRuns(const PlanningInput& input) const;

  v1::JobSummary Summary() const;
  v1::GetJobResponse Describe() const;
  JobSnapshot Snapshot() const;
  v1::Constraints constraints() const;
  // Equal where the constraints are.
  std::string constraints_etag() const;
  bool connected() const;
  // When a rank was last heard of.
  absl::Time last_heard() const;

  void AddEvent(const std::string& text, int32_t rank = -1, int64_t generation = 0);

 private:
  struct Rank {
    v1::Hello hello;
    std::shared_ptr<RankChannel> channel;  // null: not connected
    bool said_goodbye = false;
    PlanStanding standing;
    v1::StepReport last_report;  // without profile and costs
    int64_t reports = 0;         // taken in this incarnation
    RecentMedian plain_step_seconds;
    absl::Time last_heard;
    std::shared_ptr<const planner::MemoryProfile> profile;
    bool fresh_profile = false;
    std::shared_ptr<const LiveMemory> live;  // of the newest report that had it
  };

  // What Connect has to do once it knows the hello's place among the incarnations.
  enum class Admission { kCurrent, kNewer };
  absl::StatusOr<Admission> Admit(const v1::Hello& hello) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckFrozen(int64_t generation) const;
  std::vector<std::shared_ptr<RankChannel>> StartIncarnation(const IncarnationRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Rank*> FindRank(int32_t rank, const RankChannel* channel) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RememberTape(size_t content) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  RankUpdate MakeUpdate(int32_t number, const Rank& rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Revive() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  absl::Status PutEnd(const JobEnd& end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  std::vector<std::shared_ptr<RankChannel>> TakeChannels() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RestoreRank(const RankRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sends the plan to all connected ranks once no lock is held; false where it is of another incarnation.
  bool Publish(const v1::Plan& plan, int64_t revision);
  RankUpdate TakeHello(const v1::Hello& hello, Rank& rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // From which profiles a plan may be made.
  enum class Profiles { kSteady, kSteadyOrEarly };
  // `take`: the profiles are not fresh any more.
  absl::StatusOr<PlanningInput> ReadPlanningInput(Profiles profiles, bool take);
  std::optional<planner::LinkReport> LinksLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string MissingLocked(Profiles profiles) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool RoundCompleteLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Judges a report's step peak by the committed plan. What is learned, in one sentence; empty where nothing is.
  std::string LearnResidual(int32_t rank, const v1::StepReport& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t LimitLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string WaitingForLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::JobSummary SummaryLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int32_t ConnectedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string name_;
  Store* const store_;
  Clock* const clock_;
  const ConsiderPlanning consider_planning_;
  EventLog events_;

  // Held over store writes that must come one after another: incarnations, tapes, constraints, the end. Taken before mutex_.
  absl::Mutex write_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);

  mutable absl::Mutex mutex_;
  IncarnationRecord incarnation_ ABSL_GUARDED_BY(mutex_);  // id empty: none yet
  std::set<std::string> superseded_ ABSL_GUARDED_BY(mutex_);
  std::map<int32_t, Rank> ranks_ ABSL_GUARDED_BY(mutex_);
  // Tapes are changed under write_mutex_, too.
  JobMeasurements measured_ ABSL_GUARDED_BY(mutex_);
  // Hashes of the tapes that were taken in this incarnation, so that the many ranks that send equal ones cost next to nothing.
  std::set<size_t> taken_tapes_ ABSL_GUARDED_BY(mutex_);
  v1::Constraints constraints_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const v1::Plan> committed_ ABSL_GUARDED_BY(mutex_);
  int64_t highest_generation_ ABSL_GUARDED_BY(mutex_) = 0;  // committed, or told of by a rank
  int64_t revision_ ABSL_GUARDED_BY(mutex_) = 0;            // the store's: grows with every change of constraints and tapes
  int64_t planned_revision_ ABSL_GUARDED_BY(mutex_) = 0;    // that the committed plan was made for
  int64_t planned_limit_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string revision_reason_ ABSL_GUARDED_BY(mutex_);  // of the last change
  PeakWatch peaks_ ABSL_GUARDED_BY(mutex_);
  int64_t residual_bytes_ ABSL_GUARDED_BY(mutex_) = 0;    // learned in this incarnation
  int64_t planned_residual_ ABSL_GUARDED_BY(mutex_) = 0;  // that the committed plan was made for
  std::string residual_reason_ ABSL_GUARDED_BY(mutex_);
  absl::Status planning_status_ ABSL_GUARDED_BY(mutex_);
  std::optional<JobEnd> end_ ABSL_GUARDED_BY(mutex_);  // changed under write_mutex_, too
  absl::Time last_heard_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_JOB_JOB_H_
