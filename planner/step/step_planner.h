// Plans of a whole step: the planner's work behind planner.h, with what several questions about one problem share.
#ifndef TIDETAPE_PLANNER_STEP_STEP_PLANNER_H_
#define TIDETAPE_PLANNER_STEP_STEP_PLANNER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/model/plan.h"
#include "planner/model/problem.h"
#include "planner/step/block_choices.h"
#include "planner/step/step_bound.h"
#include "planner/step/step_choice.h"
#include "planner/step/step_memory.h"
#include "planner/step/step_refinement.h"

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
  StepPlanner(const PlanningProblem& problem, std::unique_ptr<BlockChoices> blocks)
      : problem_(problem),
        blocks_(std::move(blocks)),
        learn_([this](size_t block, Choice& choice) { blocks_->FindOwnPeak(block, choice); }) {}

  absl::StatusOr<BlockPlan> EvaluateBlock(size_t block, std::vector<int32_t> saved, const std::vector<int32_t>& moved) const;
  bool has_schedule() const { return !problem_.schedule.empty(); }
  void LowerTheLeastPeak();
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
  const std::unique_ptr<BlockChoices> blocks_;
  const LearnOwnPeak learn_;
  StepPeak least_kept_peak_;             // of plans of spread choices, which move nothing
  StepPeak least_peak_;                  // of all that are known
  std::vector<BlockPlan> least_moving_;  // the leanest plan with moves; empty where nothing may be moved
  double full_seconds_ = 0;

  std::unique_ptr<StepRefinement> refinement_;  // made when a plan's gap first asks for it
};

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_STEP_STEP_PLANNER_H_
