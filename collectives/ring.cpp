#include "collectives/ring.h"

#include <algorithm>
#include <utility>

namespace tidetape::collectives {
namespace {

constexpr int64_t kSumBytes = 4;

// Over all rounds, messages that the member before this one sends: in step s it sends the block s + 1 before it, all but its own.
int32_t CountIncoming(const RingPlace& place, int64_t slot_bytes, const std::vector<std::vector<SumBlock>>& rounds) {
  size_t count = 0;
  for (const auto& blocks : rounds) {
    for (int32_t s = 2; s <= place.size; ++s) count += Parts(blocks[place.Back(s)], slot_bytes).size();
  }
  return static_cast<int32_t>(count);
}

}  // namespace

std::vector<SumBlock> Parts(const SumBlock& block, int64_t bytes) {
  std::vector<SumBlock> parts;
  const int64_t most = std::max<int64_t>(1, bytes / kSumBytes);
  for (int64_t done = 0; done < block.elements; done += most) {
    parts.push_back({block.offset + done * kSumBytes, std::min(most, block.elements - done)});
  }
  return parts;
}

RingReduce::RingReduce(const RingPlace& place, const StagingSlots& staging, int32_t data, int32_t free,
                       std::vector<std::vector<SumBlock>> rounds)
    : place_(place),
      staging_(staging),
      rounds_(std::move(rounds)),
      messages_(CountIncoming(place, staging.slot_bytes, rounds_)),
      out_(place.next, data, free, staging.slots),
      in_(place.previous, data, free, staging.slots, messages_) {}

std::vector<SumBlock> RingReduce::Messages(int32_t round, int32_t block) const {
  return Parts(rounds_[round][block], staging_.slot_bytes);
}

void RingReduce::Round(int32_t round, ScheduleBuilder& builder) {
  if (place_.size == 1) return;
  std::vector<SumBlock> sends, receives;
  for (int32_t s = 1; s < place_.size; ++s) {
    for (const SumBlock& part : Messages(round, place_.Back(s))) sends.push_back(part);
    for (const SumBlock& part : Messages(round, place_.Back(s + 1))) receives.push_back(part);
  }
  // What a member sends first is its own; each later send hands on what was received that many messages before.
  const size_t own = Messages(round, place_.Back(1)).size();
  size_t sent = 0;
  const auto send_what_can_be = [&](size_t received) {
    while (sent < sends.size() && sent < received + own && sent < received + staging_.slots) {
      const SumBlock& part = sends[sent++];
      const int32_t slot = out_.Acquire(builder);
      builder.Put(out_.peer(), {Buffer::kArena, 0, part.offset}, staging_.at(slot), part.elements * kSumBytes, out_.data(), true,
                  slot);
    }
  };
  send_what_can_be(0);
  for (size_t i = 0; i < receives.size(); ++i) {
    const SumBlock& part = receives[i];
    const int32_t slot = in_.Await(builder, 1);
    builder.Compute(StepKind::kAdd, DType::kFloat32, {Buffer::kArena, 0, staging_.at(slot)}, {Buffer::kArena, 0, part.offset},
                    part.elements);
    in_.Release(builder);
    send_what_can_be(i + 1);
  }
}

void RingGather(const RingPlace& place, const std::vector<SumBlock>& blocks, int64_t chunk_bytes, int32_t data,
                ScheduleBuilder& builder) {
  for (int32_t s = 0; s < place.size; ++s) {
    for (const SumBlock& part : Parts(blocks[place.Back(s)], chunk_bytes)) {
      if (s > 0) builder.Wait(place.previous, data, 1);
      if (s + 1 == place.size) continue;
      builder.Put(place.next, {Buffer::kArena, 0, part.offset}, part.offset, part.elements * kSumBytes, data, true);
    }
  }
}

}  // namespace tidetape::collectives
