// Plans as the recorder asks for them: what to do in the block that begins.
#ifndef TIDETAPE_AGENT_SESSION_PLAN_TABLE_H_
#define TIDETAPE_AGENT_SESSION_PLAN_TABLE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/link/tt_link.h"
#include "agent/tape/block.h"

namespace tidetape::agent {

// One block of a plan, for people and for the recorder.
struct PlannedBlock {
  std::string name;
  BlockActions actions;
  int64_t saved_bytes = 0;
  double replay_seconds = 0;
  int64_t own_peak_bytes = 0;
  int32_t num_saved = 0;
  int32_t num_replayed = 0;
  int32_t num_moved = 0;
  int64_t moved_bytes = 0;  // to host memory, inputs included
  int32_t option = -1;      // of a block without a tape
};

// A plan of its own memory, unlike tt_plan.
struct HeldPlan {
  explicit HeldPlan(const tt_plan& plan);

  // The actions for the execution at `position` of the block `name`; null where the plan does not know the block.
  const BlockActions* Find(int32_t position, const std::string& name) const;
  // The same for the block as a whole.
  const PlannedBlock* FindBlock(int32_t position, const std::string& name) const;

  int64_t generation = 0;
  std::vector<PlannedBlock> blocks;  // in the order of execution
  int64_t memory_limit_bytes = 0;
  int64_t step_peak_bytes = 0;
  int64_t headroom_bytes = 0;
  double replay_seconds = 0;
  int64_t saved_bytes = 0;
  int64_t moved_bytes = 0;
  double move_seconds = 0;
  double lower_bound_seconds = 0;
  double gap_ratio = 0;
  int64_t least_peak_bytes = 0;
  bool feasible = true;
  std::string least_peak_holder;
  std::string peak_holder;
  std::string reason;
  std::string etag;
  std::optional<tt_pacing_plan> pacing;  // of the collectives; none: they stay as they are

 private:
  std::unordered_map<std::string, size_t> by_name_;  // the first execution of each block
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_SESSION_PLAN_TABLE_H_
