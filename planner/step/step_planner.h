// Plans of a whole step: the planner's work behind planner.h, with what several questions about one problem share.
#ifndef TIDETAPE_PLANNER_STEP_STEP_PLANNER_H_
#define TIDETAPE_PLANNER_STEP_STEP_PLANNER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/model/plan.h"
#include "planner/model/problem.h"
#include "planner/step/step_bound.h"
#include "planner/step/step_choice.h"
#include "planner/step/step_memory.h"
#include "planner/step/step_refinement.h"
#include "planner/tape/tape_plans.h"

namespace tidetape::planner {

// Keeps a reference to the problem. Not safe for use from several threads at once.
class StepPlanner {
 public:
  // Checks the problem and computes the hull of each tape that a block uses. InvalidArgument as ValidateProblem, or for a tape that
  // has no plan.
  static absl::StatusOr<std::unique_ptr<StepPlanner>> Create(const PlanningProblem& problem);
  StepPlanner(const StepPlanner&) = delete;
  StepPlanner& operator=(const StepPlanner&) = delete;

  // The fastest plan under the limit, over the vertices of each block's hull, "keep all" and lean plans, and what of them may be
  // moved; a limit of 0 and an infeasible limit give the fastest plan at the least peak, kUnlimitedBytes keeps everything.
  StepPlan Plan(int64_t limit);
  // The same, and where the gap is wide a search for better plans and a better bound; not under a schedule.
  StepPlan PlanClosely(int64_t limit, const Effort& effort);
  // The step plan of given plans, one list of saved storages a block (a block with options: the index of its option), and one of
  // moved storages where anything is moved.
  absl::StatusOr<StepPlan> Evaluate(const std::vector<std::vector<int32_t>>& saved, const std::vector<std::vector<int32_t>>& moved,
                                    int64_t limit);
  int64_t least_peak_bytes() const { return least_peak_.bytes; }
  // Of replaying all that the leanest plans on the hulls replay.
  double full_seconds() const { return full_seconds_; }

 private:
  explicit StepPlanner(const PlanningProblem& problem)
      : problem_(problem), learn_([this](size_t block, Choice& choice) { FindOwnPeak(block, choice); }) {}

  const TapePlans& plans(size_t block) const { return *tapes_[problem_.blocks[block].tape]; }
  absl::StatusOr<BlockPlan> EvaluateBlock(size_t block, std::vector<int32_t> saved, const std::vector<int32_t>& moved) const;
  bool has_tape(size_t block) const { return problem_.blocks[block].options.empty(); }
  bool has_schedule() const { return !problem_.schedule.empty(); }
  void PrepareBlock(size_t block);
  // The plan at a vertex of the block's hull, by what the cut says of it and what bounds all own peaks.
  Choice VertexChoice(size_t block, int32_t vertex);
  Choice KnownChoice(size_t block, const TapePlan& plan, int32_t id) const;
  void FindOwnPeak(size_t block, Choice& choice);
  void AddVertices(size_t block, const std::vector<int32_t>& vertices, std::vector<Choice>& choices);
  std::vector<Choice> SpreadChoices(size_t block);
  void LowerTheLeastPeak();
  void AddLeanVertices(size_t block);
  void AddLeanChoices(size_t searched, int64_t& visits);
  Choices ChoicesNear(const StepBound& bound);
  void AddWithin(const StepBound& bound, double seconds, Choices& choices);
  int64_t VisitsAChoice() const;
  std::vector<std::vector<BlockPlan>> WaysOf(const Choices& choices);
  void FindLeastWithMoves();
  void Move(StepPlan& plan, int64_t limit);
  std::optional<StepBound> Bound(int64_t limit) const;
  BlockPlan MakeBlockPlan(size_t block, int32_t choice_id);
  // Without the bound.
  StepPlan MakeStepPlan(std::vector<BlockPlan> blocks, int64_t limit) const;
  // By block: the id of its choice. Likewise without the bound.
  StepPlan PlanOfChoices(const std::vector<int32_t>& ids, int64_t limit);
  void SetHullBound(StepPlan& plan, int64_t limit) const;
  void Refine(StepPlan& plan, int64_t limit, const Effort& effort);
  StepPlan KeepAll();
  StepPlan FastestUnder(int64_t limit);
  StepPlan FastestInSchedule(int64_t limit);

  const PlanningProblem& problem_;
  const LearnOwnPeak learn_;
  std::vector<std::unique_ptr<TapePlans>> tapes_;     // by tape; null where no block uses it
  std::vector<std::vector<HullPoint>> option_hulls_;  // by block; empty where it has a tape
  std::vector<const std::vector<HullPoint>*> hulls_;  // by block
  std::vector<BlockLeast> least_;                     // by block, of all plans
  std::vector<OwnPeakRange> own_peaks_;               // by block with a tape
  Choices choices_;                                   // by block, spread over the hull
  StepPeak least_kept_peak_;                          // of plans that move nothing
  StepPeak least_peak_;                               // of all
  std::vector<BlockPlan> least_moving_;               // the leanest plan with moves; empty where nothing may be moved
  double full_seconds_ = 0;

  std::unique_ptr<StepRefinement> refinement_;  // made when a plan's gap first asks for it
};

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_STEP_STEP_PLANNER_H_
