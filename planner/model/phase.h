// The parts of a step.
#ifndef TIDETAPE_PLANNER_MODEL_PHASE_H_
#define TIDETAPE_PLANNER_MODEL_PHASE_H_

namespace tidetape::planner {

enum class Phase { kForward, kHead, kBackward, kOptimizer };

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_MODEL_PHASE_H_
