// "My slot is free", said with the generation of the pacing that the sender will gather under.
//
// Ranks of different generations would run different schedules, and wait for messages that nobody sends. Whoever writes into a
// peer's slot has waited for this word of the peer's, before it waits for any bytes of the same peer. So the two are compared
// before one can hang on the other.
//
// One place a sender and slot is enough: a rank says that a slot is free again after all who were told before have written there,
// and they have looked by then.
#ifndef TIDETAPE_AGENT_FSDP_READY_BOARD_H_
#define TIDETAPE_AGENT_FSDP_READY_BOARD_H_

#include <cstdint>
#include <deque>

#include "absl/status/status.h"
#include "collectives/transport.h"

namespace tidetape::agent {

// Not thread-safe.
class ReadyBoard {
 public:
  // From `offset` of the arena on, which is a multiple of 8.
  ReadyBoard(collectives::Transport& transport, uint64_t offset, int32_t slots)
      : transport_(transport), offset_(offset), slots_(slots) {}

  static uint64_t Bytes(int32_t ranks, int32_t slots) { return sizeof(int64_t) * static_cast<uint64_t>(ranks * slots); }

  // Tells the peer. Generations never fall.
  absl::Status Say(int32_t peer, int32_t slot, int32_t signal, int64_t generation);

  // What the peer said, once its signal was waited for. FailedPrecondition where that is another generation.
  absl::Status Check(int32_t peer, int32_t slot, int64_t generation) const;

 private:
  uint64_t Place(int32_t sender, int32_t slot) const { return offset_ + Bytes(1, sender * slots_ + slot); }

  collectives::Transport& transport_;
  const uint64_t offset_;
  const int32_t slots_;
  // Puts read them later, so they stay where they are.
  std::deque<int64_t> said_;
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_FSDP_READY_BOARD_H_
