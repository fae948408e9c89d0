// The plans of a region of one tape as a relaxation of the step sees them: choices of which each plan has one that it does not
// beat.
#ifndef TIDETAPE_PLANNER_STEP_REGION_PIECES_H_
#define TIDETAPE_PLANNER_STEP_REGION_PIECES_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "planner/step/step_choice.h"
#include "planner/tape/tape_plans.h"

namespace tidetape::planner {

// What no plan of the region goes below, in one instance of its tape.
struct RegionBounds {
  const std::vector<HullPoint>& hull;
  const OwnPeakRange& own_peaks;
  const std::vector<HullPoint>& hull_at_peak;  // at own_peaks.least_event
};

// Which plans are of interest, and how finely.
struct PieceNeeds {
  std::function<double(int64_t saved_bytes, double seconds)> excess;  // above a bound's prices: linear, rising with both
  double most_excess = 0;
  int64_t most_own_peak = 0;
  double grain_seconds = 0;  // pieces are about so long, or where they would be very many longer
};

// Cuts hull and own peaks into pieces, and appends for each the fewest bytes, the least own peak and the least seconds of its
// plans, with `id`. Every plan of the region that meets the needs lies in one of them.
void AppendPieces(const RegionBounds& region, const PieceNeeds& needs, int32_t id, std::vector<Choice>& pieces);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_STEP_REGION_PIECES_H_
