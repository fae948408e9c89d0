// The pacing that goes with a job's plans, and when a new one is worth a switch.
//
// Like planner::ReplanPolicy: a pacing stays while another one is not clearly better, and what only varies must be seen several
// times in a row.
#ifndef TIDETAPE_SERVER_ACTIVATION_PACING_POLICY_H_
#define TIDETAPE_SERVER_ACTIVATION_PACING_POLICY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "planner/pacing.h"
#include "tidetape/v1/plan.pb.h"

namespace tidetape::server {

// Of one job. Not thread-safe.
class PacingPolicy {
 public:
  // Why the committed plan needs another pacing, in one sentence; empty where it does not. `links`: of all ranks, none where not
  // all have measured. Asked once for each round of measurements.
  std::string Reason(const std::optional<planner::LinkReport>& links, const v1::Plan& committed);

  // Puts into `plan`, which has none, the pacing of a plan for these links: the committed one's (null: there is none) where that
  // still does, and into its etag. Without links a plan keeps what is committed.
  void Fill(const std::optional<planner::LinkReport>& links, const v1::Plan* committed, v1::Plan& plan);

 private:
  int32_t off_in_a_row_ = 0;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_ACTIVATION_PACING_POLICY_H_
