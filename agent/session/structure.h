// What was learned of each block structure: its tape as the planner wants it, and the costs of its ops over many replays.
#ifndef TIDETAPE_AGENT_SESSION_STRUCTURE_H_
#define TIDETAPE_AGENT_SESSION_STRUCTURE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "agent/link/tt_link.h"
#include "agent/measure/step_profile.h"
#include "agent/tape/tape.h"

namespace tidetape::agent {

// A tape without tensors, and what replays of its structure cost.
class Structure {
 public:
  explicit Structure(const Tape& tape);

  // Takes the times and workspaces of the ops that `tape` replayed.
  void AddCosts(const Tape& tape);

  // Median replay seconds an op; negative: never replayed.
  std::vector<double> Costs() const;
  const std::vector<int64_t>& workspaces() const { return workspaces_; }

  // Hands the tape with `marks` as its backward to the link. `base_bytes`: what the marks stand on.
  tt_link_status Send(tt_link_status (*put_tape)(tt_link*, const tt_block_tape*), tt_link* link,
                      const std::vector<BackwardMark>& marks, int64_t base_bytes) const;

  bool sent = false;
  // The reads and releases of the marks that the sent tape has.
  std::vector<BackwardMark> marks;

  // For people and for tests.
  std::string ToText() const;

 private:
  struct Op {
    std::string name;
    std::vector<int32_t> reads;
    std::vector<int32_t> writes;
    bool replayable = true;
    std::vector<float> seconds;  // the newest samples
    size_t next_sample = 0;
  };
  struct Storage {
    int64_t bytes = 0;
    Site site = 0;
    std::string label;
    StorageKind kind = StorageKind::kIntermediate;
    bool must_save = false;
  };

  std::string name_;
  uint64_t hash_;
  std::vector<Storage> storages_;
  std::vector<Op> ops_;
  std::vector<int32_t> consumed_;
  std::vector<int64_t> workspaces_;
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_SESSION_STRUCTURE_H_
