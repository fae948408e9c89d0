// Rings over blocks of float32 sums: the network part of a reduce-scatter.
#ifndef TIDETAPE_COLLECTIVES_RING_H_
#define TIDETAPE_COLLECTIVES_RING_H_

#include <cstdint>
#include <vector>

#include "collectives/schedule_builder.h"

namespace tidetape::collectives {

// A block of float32 at the same offset of all arenas of the ring.
struct SumBlock {
  int64_t offset = 0;
  int64_t elements = 0;
};

struct RingPlace {
  int32_t self = 0, size = 1;
  int32_t next = 0, previous = 0;  // ranks

  // The member `steps` before this one.
  int32_t Back(int32_t steps) const { return ((self - steps) % size + size) % size; }
};

struct StagingSlots {
  int64_t offset = 0;  // in the arena
  int64_t slot_bytes = 0;
  int32_t slots = 1;

  int64_t at(int32_t slot) const { return offset + slot * slot_bytes; }
};

// Block i of each round ends at member i with the sum of all members' blocks, added in the order i + 1, i + 2, ..., i. Works
// through several rounds of blocks; staging slots are handed from round to round.
//
// A member keeps at most as many sends ahead of its receives as there are slots, and its sends need nothing but earlier receives.
// So the receive of message j waits, over all members, for receives of smaller j only: no cycle.
class RingReduce {
 public:
  // rounds[q][i]: block i in round q.
  RingReduce(const RingPlace& place, const StagingSlots& staging, int32_t data, int32_t free,
             std::vector<std::vector<SumBlock>> rounds);

  // Whether the member before this one sends anything in any round.
  bool receives() const { return messages_ > 0; }
  void Round(int32_t round, ScheduleBuilder& builder);

 private:
  std::vector<SumBlock> Messages(int32_t round, int32_t block) const;

  RingPlace place_;
  StagingSlots staging_;
  std::vector<std::vector<SumBlock>> rounds_;
  int32_t messages_ = 0;
  OutChannel out_;
  InChannel in_;
};

// Block i is final at member i; afterwards all members have all blocks. Bytes go straight to their places.
void RingGather(const RingPlace& place, const std::vector<SumBlock>& blocks, int64_t chunk_bytes, int32_t data,
                ScheduleBuilder& builder);

// The block in parts of at most `bytes`.
std::vector<SumBlock> Parts(const SumBlock& block, int64_t bytes);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_RING_H_
