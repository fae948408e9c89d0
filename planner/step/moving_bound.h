// What no plan of a step can beat that may also move values to the host.
//
// A byte that is moved costs r = 2 / host_bytes_per_second seconds, whatever it belongs to: there and back, and no two copies run
// at a time. So a block that keeps x bytes from its forward to its backward, on the device or on the host, and holds s of them on
// the device, costs at least h(x) + r (x - s), h being its hull; over all x that is
//
//   h_r(s) = min over x >= s of h(x) + r (x - s),
//
// the hull down to where it first rises by more than r a byte, and from there on a line of slope r. The host's limit H couples the
// blocks. For every price p >= 0 of a byte on the host, the relaxation of step_bound.h over the hulls h_(r+p), less p H, is below
// all plans (weak duality); the best p makes it as high as it gets.
#ifndef TIDETAPE_PLANNER_STEP_MOVING_BOUND_H_
#define TIDETAPE_PLANNER_STEP_MOVING_BOUND_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/model/problem.h"
#include "planner/step/step_bound.h"
#include "planner/tape/tape_plans.h"

namespace tidetape::planner {

// The problem lets plans move values at all: less than a byte a second is no way to the host, and under a schedule nothing moves.
inline bool MayMove(const PlanningProblem& problem) {
  return problem.host_bytes_limit > 0 && problem.host_bytes_per_second >= 1 && problem.schedule.empty();
}

// Seconds to move a byte to the host and back.
inline double MoveSecondsAByte(const PlanningProblem& problem) { return 2 / problem.host_bytes_per_second; }

// HullPoint::vertex of the end of h_r's line, where nothing is left on the device.
inline constexpr int32_t kMovesAll = -2;

// h_r as above, for a block whose inputs of `input_bytes` can be moved, too. `hull` by falling bytes.
std::vector<HullPoint> HullWithMoves(const std::vector<HullPoint>& hull, double seconds_a_byte, int64_t input_bytes);

struct MovingBound {
  double seconds = 0;
  std::vector<int64_t> kept_bytes;  // by block, on the device or on the host, where the bound is reached
};

// `hulls` and `least` by block, without moves. Nullopt where no plan keeps the limit. The problem is one of MayMove().
std::optional<MovingBound> BoundMovingStep(const PlanningProblem& problem, const std::vector<const std::vector<HullPoint>*>& hulls,
                                           const std::vector<BlockLeast>& least, int64_t limit);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_STEP_MOVING_BOUND_H_
