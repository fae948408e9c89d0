// The audit of a recording: replay it at the end of the block's own forward, and compare with what the forward made, bit for bit.
//
// Whatever makes a value irreproducible (hidden state, an untagged random source, a kernel that the dispatcher does not see, a
// race), it shows here, and the value is kept from then on. While the block is recorded, everything that autograd packs stays
// alive, as in plain training; the replay adds one op's outputs to that.
#ifndef TIDETAPE_AGENT_TAPE_AUDIT_H_
#define TIDETAPE_AGENT_TAPE_AUDIT_H_

#include <vector>

#include "agent/tape/tape.h"

namespace tidetape::agent {

// What autograd packed, as it is, while the tape thinks that it will be replayed.
class AuditedValues {
 public:
  void Add(const Tape& tape, const ValueRef& value, StorageRef original);

  // Replays the tape, which is prepared, and compares. What differs or cannot be replayed becomes must-save, on this tape with its
  // original, and by site in tape.block->demoted. Leaves the tape prepared, and nothing here.
  void Audit(Tape& tape);

 private:
  struct Entry {
    ValueRef value;
    StorageRef original;
    bool demoted = false;
  };
  void CompareWritten(Tape& tape, int32_t op);

  std::vector<Entry> entries_;
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_TAPE_AUDIT_H_
