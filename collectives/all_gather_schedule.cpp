#include "collectives/all_gather_schedule.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "collectives/schedule_builder.h"
#include "collectives/validate_group.h"

namespace tidetape::collectives {
namespace {

// Bytes of the arena that one put moves; the same offset on both sides.
struct Chunk {
  int64_t offset = 0;
  int64_t bytes = 0;
};

class AllGatherBuilder {
 public:
  AllGatherBuilder(const Layout& layout, int32_t unit, const Group& group, const ScheduleOptions& options)
      : layout_(layout),
        unit_(unit),
        group_(group),
        options_(options),
        data_(layout.GatherSignal(layout.units()[unit].slot)),
        shared_(layout.shared(layout.units()[unit].slot)),
        builder_("all-gather", layout.spec().units[unit].name, layout.units()[unit].slot, group.rank(),
                 layout.ReadySignal(layout.units()[unit].slot), options) {
    for (int32_t local = 0; local < group.per_node; ++local) {
      if (local != group.local()) local_peers_.push_back(group.rank_at(group.node(), local));
    }
  }

  Schedule Build() {
    const bool doubling = options_.rail == RailAlgorithm::kDoubling && (group_.nodes() & (group_.nodes() - 1)) == 0;
    builder_.BeginPhase("ready");
    for (int32_t local = 0; local < group_.per_node; ++local) {
      if (local != group_.local() && (shared_ || CountOfRail(local) > 0)) builder_.Ready(group_.rank_at(group_.node(), local));
    }
    if (shared_) {
      builder_.BeginPhase("admit");
      for (int32_t peer : local_peers_) builder_.AwaitReady(peer);
    }
    doubling ? SayReadyToPartners() : SayReadyToPrevious();
    builder_.BeginPhase("gather");
    doubling ? Double() : Circle();
    for (int32_t local = 0; local < group_.per_node; ++local) {
      if (local != group_.local()) builder_.Wait(group_.rank_at(group_.node(), local), data_, CountOfRail(local));
    }
    builder_.Flush();
    return builder_.Finish();
  }

 private:
  // The shard of (node, local), in puts.
  std::vector<Chunk> Chunks(int32_t node, int32_t local) const {
    const int32_t g = group_.position(node, local);
    std::vector<Chunk> chunks;
    const UnitPlace& unit = layout_.units()[unit_];
    for (size_t p = 0; p < unit.parameters.size(); ++p) {
      const ParameterPlace& place = unit.parameters[p];
      if (place.storage_of != static_cast<int32_t>(p)) continue;
      const int64_t size = DTypeBytes(layout_.spec().units[unit_].parameters[p].dtype);
      const int64_t piece = place.geometry.piece_elements(g) * size;
      for (int64_t o = 0; o < place.geometry.outer && piece > 0; ++o) {
        const int64_t begin = place.offset + place.geometry.storage_element(g, o) * size;
        for (int64_t done = 0; done < piece; done += options_.chunk_bytes) {
          chunks.push_back({begin + done, std::min(options_.chunk_bytes, piece - done)});
        }
      }
    }
    return chunks;
  }

  int32_t Count(int32_t node, int32_t local) const { return static_cast<int32_t>(Chunks(node, local).size()); }
  // Signals for all that (own node, local) hands on to its node.
  int32_t CountOfRail(int32_t local) const {
    int32_t count = 0;
    for (int32_t node = 0; node < group_.nodes(); ++node) {
      const int32_t chunks = Count(node, local);
      count += shared_ && node == group_.node() ? std::min(1, chunks) : chunks;
    }
    return count;
  }

  int32_t RailRank(int32_t node) const { return group_.rank_at(node, group_.local()); }
  void Send(int32_t peer, const Chunk& chunk) {
    builder_.Put(peer, {Buffer::kArena, 0, chunk.offset}, chunk.offset, chunk.bytes, data_, true);
  }
  // In a slot that the host shares the bytes are there already: the others are only told.
  void HandOn(const Chunk& chunk) {
    if (shared_) return Tell();
    builder_.Multicast(local_peers_, {Buffer::kArena, 0, chunk.offset}, chunk.offset, chunk.bytes, data_);
  }

  void Tell() {
    for (int32_t peer : local_peers_) builder_.Signal(peer, data_);
  }

  // What `node` holds before the round that bridges `distance`.
  std::vector<int32_t> Held(int32_t node, int32_t distance) const {
    std::vector<int32_t> nodes;
    nodes.reserve(distance);
    for (int32_t i = 0; i < distance; ++i) nodes.push_back(node ^ i);
    return nodes;
  }
  int32_t CountHeld(int32_t node, int32_t distance) const {
    int32_t count = 0;
    for (int32_t held : Held(node, distance)) count += Count(held, group_.local());
    return count;
  }

  void SayReadyToPartners() {
    for (int32_t distance = 1; distance < group_.nodes(); distance *= 2) {
      const int32_t partner = group_.node() ^ distance;
      if (CountHeld(partner, distance) > 0) builder_.Ready(RailRank(partner));
    }
  }

  // What arrives is handed on chunk by chunk, beside what is still to arrive.
  void Double() {
    for (int32_t distance = 1; distance < group_.nodes(); distance *= 2) {
      const int32_t partner = group_.node() ^ distance;
      for (int32_t node : Held(group_.node(), distance)) {
        for (const Chunk& chunk : Chunks(node, group_.local())) Send(RailRank(partner), chunk);
      }
      if (distance == 1) HandOnOwn();
      for (int32_t node : Held(partner, distance)) {
        for (const Chunk& chunk : Chunks(node, group_.local())) {
          builder_.Wait(RailRank(partner), data_, 1);
          HandOn(chunk);
        }
      }
    }
    if (group_.nodes() == 1) HandOnOwn();
  }

  // The own shard is written before the phase begins, so one word is enough for all of it.
  void HandOnOwn() {
    const std::vector<Chunk> chunks = Chunks(group_.node(), group_.local());
    if (shared_ && !chunks.empty()) return Tell();
    for (const Chunk& chunk : chunks) HandOn(chunk);
  }

  int32_t Back(int32_t steps) const { return (group_.node() - steps + group_.nodes()) % group_.nodes(); }

  void SayReadyToPrevious() {
    int32_t count = 0;
    for (int32_t s = 1; s < group_.nodes(); ++s) count += Count(Back(s), group_.local());
    if (count > 0) builder_.Ready(RailRank(Back(1)));
  }

  // Chunk by chunk, so that a rank hands on a shard while the rest of it arrives.
  void Circle() {
    const int32_t next = RailRank((group_.node() + 1) % group_.nodes()), previous = RailRank(Back(1));
    if (group_.nodes() > 1) {
      for (const Chunk& chunk : Chunks(group_.node(), group_.local())) Send(next, chunk);
    }
    HandOnOwn();
    for (int32_t s = 1; s < group_.nodes(); ++s) {
      for (const Chunk& chunk : Chunks(Back(s), group_.local())) {
        builder_.Wait(previous, data_, 1);
        if (s + 1 < group_.nodes()) Send(next, chunk);
        HandOn(chunk);
      }
    }
  }

  const Layout& layout_;
  const int32_t unit_;
  const Group& group_;
  const ScheduleOptions& options_;
  const int32_t data_;
  const bool shared_;
  ScheduleBuilder builder_;
  std::vector<int32_t> local_peers_;
};

}  // namespace

absl::StatusOr<Schedule> AllGatherSchedule(const Layout& layout, int32_t unit, const Group& group, const ScheduleOptions& options) {
  if (absl::Status status = ValidateGroup(layout, unit, group); !status.ok()) return status;
  if (absl::Status status = ValidateScheduleOptions(options); !status.ok()) return status;
  return AllGatherBuilder(layout, unit, group, options).Build();
}

}  // namespace tidetape::collectives
