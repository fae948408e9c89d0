// Closes the gap between a step plan and its bound, by cutting the plans of each tape into regions.
//
// A relaxation of the step picks for each block a piece of a region of its tape's plan space (region_pieces.h, timed_choice.h), as
// far as a faster plan may lie from the prices of step_bound.h. Its time bounds every step plan. Where no known plan does what the
// relaxation promises, the regions that promise it are split, which makes the relaxation tighter and finds new plans. Pieces are
// as fine as the gap that is left: a fine relaxation takes long, and says little while the gap is wide.
#ifndef TIDETAPE_PLANNER_STEP_STEP_REFINEMENT_H_
#define TIDETAPE_PLANNER_STEP_STEP_REFINEMENT_H_

#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "planner/model/plan.h"
#include "planner/model/problem.h"
#include "planner/step/step_bound.h"
#include "planner/step/step_choice.h"
#include "planner/tape/plan_space.h"
#include "planner/tape/tape_index.h"
#include "planner/tape/tape_plans.h"

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
  // are numbers of found() above `first_id`; and raises the bound of all mixtures, until they are `gap_seconds` apart, the effort's
  // visits are used up (VisitsARegion), or the effort is stopped.
  Result Refine(Choices choices, int32_t first_id, int64_t limit, const StepBound& bound, double plan_seconds, double gap_seconds,
                const Effort& effort);

  const TapePlan& found(int32_t tape, int32_t number) const { return *found_[tape][number]; }

 private:
  // What one call looks for.
  struct Search {
    const StepBound& bound;
    std::vector<int64_t> most_own_peak;  // by block: under the limit
    std::vector<Flags> hopeless;         // by block, by region: no plan of it is fast and lean enough
    std::vector<size_t> offered;         // by block: so many of its tape's found plans are among its choices
  };

  bool has_tape(size_t block) const { return problem_.blocks[block].options.empty(); }
  Search MakeSearch(int64_t limit, const StepBound& bound) const;
  void AddFound(Search& search, int32_t first_id, Choices& choices) const;
  const OwnPeakRange& RangeOf(size_t block, int32_t region);
  std::vector<Choice> Pieces(size_t block, Search& search, double most_excess, double grain_seconds);
  bool Split(size_t block, const Choice& piece);
  bool SplitRivals(size_t block, const std::vector<Choice>& pieces, const Choice& promise, double seconds,
                   std::set<std::pair<int32_t, int32_t>>& met, int64_t& visits);
  void AddCorners(int32_t tape, int32_t region, int64_t bytes);

  const PlanningProblem& problem_;
  std::vector<std::unique_ptr<PlanSpace>> spaces_;             // by tape
  std::vector<std::vector<OwnPeakRange>> own_peaks_;           // by block, by region, as far as they were asked for
  std::vector<std::vector<std::unique_ptr<TapePlan>>> found_;  // by tape
};

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_STEP_STEP_REFINEMENT_H_
