// What stands behind the C interface: a planner in this process (LocalLink) or a server (GrpcLink).
#ifndef TIDETAPE_AGENT_LINK_PLANNER_LINK_H_
#define TIDETAPE_AGENT_LINK_PLANNER_LINK_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/link/plan_slot.h"
#include "agent/link/tt_link.h"
#include "planner/job/measurement.h"
#include "planner/model/problem.h"
#include "planner/pacing.h"

namespace tidetape::link {

// tt_link_options, owned.
struct LinkOptions {
  std::string planner;
  std::string job;
  std::string incarnation;
  int64_t incarnation_order = 0;
  int32_t rank = 0;
  int32_t world_size = 1;
  std::string node;
  std::string torch_version;
  std::string device;
  std::string agent_version;
  int64_t memory_limit_bytes = 0;
};

// tt_collective_report, owned.
struct CollectiveReport {
  double gather_seconds = 0;
  double reduce_seconds = 0;
  int64_t covered_bytes = 0;
  double covered_ratio = 0;
  int64_t network_bytes = 0;
  int64_t pacing_generation = 0;
  planner::LinkReport links;
};

// tt_step_report, owned.
struct StepReport {
  int64_t step = 0;
  int64_t generation = 0;
  double step_seconds = 0;
  int64_t step_peak_bytes = 0;
  int64_t saved_bytes = 0;
  double replay_seconds = 0;
  int64_t replayed_ops = 0;
  int64_t demoted_ops = 0;
  double agent_seconds = 0;
  std::optional<planner::MemoryProfile> profile;
  std::vector<planner::TapeCosts> costs;
  std::vector<int64_t> live_bytes;
  std::optional<CollectiveReport> collectives;
};

// tt_link_state_info, owned.
struct LinkState {
  bool connected = false;
  int64_t reports_sent = 0;
  int64_t reports_dropped = 0;
  int64_t reconnects = 0;
  std::string last_error;
};

// Thread-safe. No call waits for the network or for a plan: all work happens on the link's own thread.
class PlannerLink {
 public:
  // Close() comes first.
  virtual ~PlannerLink() = default;

  // True where PutTape would have nothing to do, so that the caller need not copy the tape.
  virtual bool HasTape(uint64_t structure_hash) const = 0;

  // Each of these returns TT_LINK_CLOSED once the link has given up for good; LinkState::last_error says why.
  virtual tt_link_status PutTape(planner::BlockTape tape) = 0;
  virtual tt_link_status ReportStep(StepReport report) = 0;
  virtual tt_link_status PlanActivated(int64_t generation, int64_t step) = 0;
  virtual tt_link_status SetMemoryLimit(int64_t memory_limit_bytes) = 0;

  virtual LinkState State() const = 0;

  // Waits at most `timeout` for what is queued, then ends the link's thread. Once; no other call may follow or overlap.
  virtual void Close(std::chrono::duration<double> timeout) = 0;

  // Where new plans appear.
  PlanSlot& plans() { return plans_; }

 protected:
  PlanSlot plans_;
};

// Makes the link that options.planner names. Returns null and fills `error` where this build has no such link.
std::unique_ptr<PlannerLink> MakePlannerLink(LinkOptions options, std::string* error);

}  // namespace tidetape::link

#endif  // TIDETAPE_AGENT_LINK_PLANNER_LINK_H_
