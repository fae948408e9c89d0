// Closes the gap between a step plan and its bound, by cutting the plans of each tape into regions.
//
// A relaxation of the step picks for each block a region of its tape's plan space and a place on that region's hull, at the
// region's least own peak (timed_choice.h). Its time bounds every step plan. The picked regions are split where no known plan does
// what the relaxation promises; splitting makes the relaxation tighter and finds new plans.
#ifndef TIDETAPE_PLANNER_STEP_REFINEMENT_H_
#define TIDETAPE_PLANNER_STEP_REFINEMENT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "planner/plan_space.h"
#include "planner/problem.h"
#include "planner/step_choice.h"
#include "planner/tape_plans.h"

namespace tidetape::planner {

// Keeps what it found from one limit to the next. Not safe for use from several threads at once.
class StepRefinement {
 public:
  // `tapes` by tape, null where no block uses it; both must outlive this.
  StepRefinement(const PlanningProblem& problem, const std::vector<std::unique_ptr<TapePlans>>& tapes);
  StepRefinement(const StepRefinement&) = delete;
  StepRefinement& operator=(const StepRefinement&) = delete;

  struct Result {
    std::vector<int32_t> picks;  // by block: id of a choice, given or found; empty where nothing faster was found
    double bound_seconds = 0;
  };
  // Looks for a plan under the limit that is faster than `plan_seconds`, among the given choices and plans that it finds, whose ids
  // are numbers of found() above `first_id`; and raises `bound_seconds`, until they are `gap_seconds` apart or `visits` are used up
  // (VisitsARegion); takes off what was used.
  Result Refine(std::vector<std::vector<Choice>> choices, int32_t first_id, int64_t limit, double plan_seconds,
                double bound_seconds, double gap_seconds, int64_t& visits);

  const TapePlan& found(int32_t tape, int32_t number) const { return *found_[tape][number]; }

 private:
  // What a choice of the relaxation stands for.
  struct Piece {
    int32_t region = 0;
    int64_t bytes = 0;
  };

  bool has_tape(size_t block) const { return problem_.blocks[block].options.empty(); }
  bool Split(const Piece& piece, const Choice& promise, size_t block);
  void AddCorners(int32_t tape, int32_t region, int64_t bytes);
  void AddFound(std::vector<std::vector<Choice>>& choices, int32_t first_id);
  std::vector<Choice> Relaxation(size_t block, double piece_seconds, std::vector<Piece>& pieces) const;

  const PlanningProblem& problem_;
  std::vector<std::unique_ptr<PlanSpace>> spaces_;             // by tape
  std::vector<std::vector<std::unique_ptr<TapePlan>>> found_;  // by tape
  std::vector<size_t> offered_;                                // by block: so many of its tape's found plans are among its choices
};

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_STEP_REFINEMENT_H_
