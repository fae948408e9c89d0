#include "collectives/reduce_scatter_schedule.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/gradient_stream.h"
#include "collectives/ring.h"
#include "collectives/schedule_builder.h"
#include "collectives/validate_group.h"

namespace tidetape::collectives {
namespace {

constexpr int64_t kSumBytes = 4;
constexpr int64_t kSlotAlignment = 64;
constexpr int32_t kMostSlots = 16;  // where all that fit are taken

int64_t RoundDown(int64_t value, int64_t multiple) { return value / multiple * multiple; }

// Where the unit's reduction happens, the same on all ranks.
struct Plan {
  bool direct = false;         // sums are final where they are made, and go straight to the outputs
  int64_t round_elements = 0;  // of each block in one round
  int32_t rounds = 0;
  int64_t sums = 0;            // offset of the blocks
  bool host_vacates = false;   // all ranks of the host had the memory of all staging
  int64_t staging_stride = 0;  // of the places below, which are local rank 0's
  StagingSlots rows, rail, replica;
  int32_t row_slots = 0;  // of one sender

  int64_t block(int32_t node) const { return sums + node * round_elements * kSumBytes; }
  // The places in the arena of that local rank.
  StagingSlots Of(int32_t local, StagingSlots slots) const {
    slots.offset += local * staging_stride;
    return slots;
  }
};

absl::StatusOr<StagingSlots> CutStaging(const Layout& layout, int32_t unit, int64_t offset, int64_t bytes, int32_t slots,
                                        int64_t most) {
  const int64_t slot_bytes =
      std::min(RoundDown(bytes / slots, kSlotAlignment), std::max(kSlotAlignment, RoundDown(most, kSlotAlignment)));
  if (slot_bytes < kSlotAlignment) {
    return absl::InvalidArgumentError(absl::StrCat("unit '", layout.spec().units[unit].name, "': staging_bytes is ",
                                                   layout.spec().options.staging_bytes, ", too small for ", slots,
                                                   " slots; raise it or lower staging_slots"));
  }
  return StagingSlots{offset, slot_bytes, slots};
}

absl::StatusOr<Plan> MakePlan(const Layout& layout, int32_t unit, const Group& group, const ScheduleOptions& options) {
  const UnitPlace& place = layout.units()[unit];
  const Region& staging = options.slot_vacated ? place.staging : layout.staging();
  const Region& accumulators = options.slot_vacated ? place.accumulators : layout.accumulators();
  Plan plan;
  plan.sums = accumulators.offset;
  plan.staging_stride = options.slot_vacated ? place.staging_stride : 0;
  plan.host_vacates = plan.staging_stride > 0;
  plan.direct = group.nodes() == 1 && group.replicas.size() <= 1;
  const int64_t elements_each = plan.direct ? place.reduced_elements : accumulators.bytes / kSumBytes / group.nodes();
  plan.round_elements = std::min(elements_each, place.reduced_elements);
  plan.rounds = static_cast<int32_t>((place.reduced_elements + plan.round_elements - 1) / plan.round_elements);

  const bool rows = group.per_node > 1, rail = group.nodes() > 1, replica = group.replicas.size() > 1;
  const int32_t users = rows + rail + replica;
  if (users == 0) return plan;
  const int64_t share = RoundDown(staging.bytes / users, kSlotAlignment);
  int64_t offset = staging.offset;
  const auto cut = [&](StagingSlots& slots, int32_t count) {
    auto made = CutStaging(layout, unit, offset, share, count, options.chunk_bytes);
    if (made.ok()) slots = *made;
    offset += share;
    return made.status();
  };
  const auto fitting = [&](int64_t bytes) {
    return static_cast<int32_t>(std::clamp<int64_t>((bytes + options.chunk_bytes - 1) / options.chunk_bytes, 2, kMostSlots));
  };
  const int32_t ring_slots = fitting(share);
  if (rows) {
    const int32_t senders = group.per_node - 1;
    plan.row_slots = options.staging_slots > 0 ? options.staging_slots : fitting(share / senders);
    if (absl::Status status = cut(plan.rows, senders * plan.row_slots); !status.ok()) return status;
  }
  if (rail) {
    if (absl::Status status = cut(plan.rail, ring_slots); !status.ok()) return status;
  }
  if (replica) {
    if (absl::Status status = cut(plan.replica, ring_slots); !status.ok()) return status;
  }
  return plan;
}

// Messages of phase 1 on their way to one rail, over all rounds: for each round the nodes in the order in which the ring wants
// them.
struct RowMessage {
  int32_t node = 0;
  StreamMessage message;
};

class ReduceScatterBuilder {
 public:
  ReduceScatterBuilder(const Layout& layout, int32_t unit, const Group& group, const ScheduleOptions& options, const Plan& plan)
      : layout_(layout),
        unit_(unit),
        group_(group),
        options_(options),
        plan_(plan),
        builder_("reduce-scatter", layout.spec().units[unit].name, layout.units()[unit].slot, group.rank(),
                 layout.Signal(ReduceSignal::kReady), options) {}

  Schedule Build() {
    MakeRows();
    MakeRings();
    builder_.BeginPhase("ready");
    for (const InChannel& in : rows_in_) {
      if (plan_.host_vacates || !rows_[group_.local()].empty()) builder_.Ready(group_.rank_at(group_.node(), Local(in)));
    }
    for (const InChannel& in : rows_in_) {
      if (plan_.host_vacates) builder_.AwaitReady(group_.rank_at(group_.node(), Local(in)));
    }
    if (rail_->receives()) builder_.Ready(rail_place_.previous);
    if (ReceivesFromReplica()) builder_.Ready(replica_place_.previous);
    for (int32_t round = 0; round < plan_.rounds; ++round) {
      builder_.BeginPhase("rows");
      Rows(round);
      builder_.Flush();  // gradients may go
      builder_.BeginPhase("network");
      rail_->Round(round, builder_);
      replica_->Round(round, builder_);
      RingGather(replica_place_, replica_blocks_[round], options_.chunk_bytes, layout_.Signal(ReduceSignal::kReplicaGather),
                 builder_);
      Write(round);
      builder_.Flush();  // the next round, or the slot's next unit, overwrites the sums
    }
    return builder_.Finish();
  }

 private:
  int64_t Begin(int32_t round) const { return round * plan_.round_elements; }
  int64_t End(int32_t round) const { return Begin(round) + plan_.round_elements; }

  // Position of a local peer among the senders of `receiver`.
  static int32_t SenderOrder(int32_t sender, int32_t receiver) { return sender < receiver ? sender : sender - 1; }
  int32_t Local(const InChannel& in) const {
    const int32_t order = static_cast<int32_t>(&in - rows_in_.data());
    return order < group_.local() ? order : order + 1;
  }
  int64_t RowSlot(int32_t sender, int32_t receiver, int32_t slot) const {
    return plan_.Of(receiver, plan_.rows).at(SenderOrder(sender, receiver) * plan_.row_slots + slot);
  }

  void MakeRows() {
    rows_.resize(group_.per_node);
    round_ends_.resize(group_.per_node);
    const int64_t slot_bytes =
        group_.per_node > 1 ? plan_.rows.slot_bytes : std::max<int64_t>(options_.chunk_bytes, kSlotAlignment);
    for (int32_t local = 0; local < group_.per_node; ++local) {
      std::vector<GradientStream> streams;
      streams.reserve(group_.nodes());
      for (int32_t node = 0; node < group_.nodes(); ++node) {
        streams.emplace_back(layout_, unit_, group_.position(node, local), options_.gradient_dtype);
      }
      for (int32_t round = 0; round < plan_.rounds; ++round) {
        for (int32_t back = 1; back <= group_.nodes(); ++back) {
          const int32_t node = (group_.node() - back + group_.nodes()) % group_.nodes();
          for (StreamMessage& message : streams[node].Messages(Begin(round), End(round), slot_bytes)) {
            rows_[local].push_back({node, std::move(message)});
          }
        }
        round_ends_[local].push_back(static_cast<int32_t>(rows_[local].size()));
      }
    }
    const int32_t data = layout_.Signal(ReduceSignal::kRows), free = layout_.Signal(ReduceSignal::kRowsFree);
    for (int32_t local = 0; local < group_.per_node; ++local) {
      const int32_t peer = group_.rank_at(group_.node(), local);
      rows_out_.emplace_back(peer, data, free, plan_.row_slots);
      if (local == group_.local()) continue;
      rows_in_.emplace_back(peer, data, free, plan_.row_slots, static_cast<int32_t>(rows_[group_.local()].size()));
    }
  }

  void MakeRings() {
    rail_place_ = {group_.node(), group_.nodes(), group_.rank_at((group_.node() + 1) % group_.nodes(), group_.local()),
                   group_.rank_at((group_.node() + group_.nodes() - 1) % group_.nodes(), group_.local())};
    replica_place_ = {0, 1, group_.rank(), group_.rank()};
    if (const int32_t size = static_cast<int32_t>(group_.replicas.size()); size > 1) {
      replica_place_ = {group_.replica, size, group_.replicas[(group_.replica + 1) % size],
                        group_.replicas[(group_.replica + size - 1) % size]};
    }
    std::vector<std::vector<SumBlock>> rail_blocks(plan_.rounds);
    for (int32_t round = 0; round < plan_.rounds; ++round) {
      for (int32_t node = 0; node < group_.nodes(); ++node) {
        const int64_t elements = GradientStream(layout_, unit_, group_.position(node, group_.local()), {}).elements();
        rail_blocks[round].push_back({plan_.block(node), std::clamp<int64_t>(elements - Begin(round), 0, plan_.round_elements)});
      }
      const SumBlock& own = rail_blocks[round][group_.node()];
      std::vector<SumBlock>& parts = replica_blocks_.emplace_back();
      for (int64_t i = 0; i < replica_place_.size; ++i) {
        const int64_t begin = own.elements * i / replica_place_.size, end = own.elements * (i + 1) / replica_place_.size;
        parts.push_back({own.offset + begin * kSumBytes, end - begin});
      }
    }
    const int32_t local = group_.local();  // of the ranks before and after this one, too
    rail_ = std::make_unique<RingReduce>(rail_place_, plan_.Of(local, plan_.rail), layout_.Signal(ReduceSignal::kRail),
                                         layout_.Signal(ReduceSignal::kRailFree), std::move(rail_blocks));
    replica_ = std::make_unique<RingReduce>(replica_place_, plan_.Of(local, plan_.replica), layout_.Signal(ReduceSignal::kReplica),
                                            layout_.Signal(ReduceSignal::kReplicaFree), replica_blocks_);
  }

  // In the reduction or in the gathering after it; they send different parts.
  bool ReceivesFromReplica() const {
    if (replica_place_.size == 1) return false;
    return std::any_of(replica_blocks_.begin(), replica_blocks_.end(), [](const std::vector<SumBlock>& parts) {
      return std::any_of(parts.begin(), parts.end(), [](const SumBlock& part) { return part.elements > 0; });
    });
  }

  // Sends run ahead of receives by the slots that a sender has.
  void Rows(int32_t round) {
    const auto begin = [&](int32_t local) { return round == 0 ? 0 : round_ends_[local][round - 1]; };
    const auto send = [&](int32_t i) {
      for (int32_t local = 0; local < group_.per_node; ++local) {
        if (local != group_.local() && begin(local) + i < round_ends_[local][round])
          SendRows(local, rows_[local][begin(local) + i]);
      }
    };
    int32_t longest = 0;
    for (int32_t local = 0; local < group_.per_node; ++local) longest = std::max(longest, round_ends_[local][round] - begin(local));
    for (int32_t i = 0; i < plan_.row_slots; ++i) send(i);
    for (int32_t i = 0; i < longest; ++i) {
      if (begin(group_.local()) + i < round_ends_[group_.local()][round])
        AddRows(rows_[group_.local()][begin(group_.local()) + i], round);
      send(i + plan_.row_slots);
    }
  }

  void SendRows(int32_t local, const RowMessage& row) {
    OutChannel& out = rows_out_[local];
    const int32_t slot = out.Acquire(builder_);
    for (const StreamPiece& piece : row.message.pieces) {
      const int64_t size = DTypeBytes(piece.dtype);
      builder_.Put(out.peer(), {Buffer::kGradient, piece.parameter, piece.gradient_element * size},
                   RowSlot(group_.local(), local, slot) + piece.staged_offset, piece.elements * size, out.data(), false, slot);
    }
  }

  // Waits for all local ranks first, so that each sum is read and written once.
  void AddRows(const RowMessage& row, int32_t round) {
    std::vector<int32_t> slots(group_.per_node, -1);
    for (InChannel& in : rows_in_) slots[Local(in)] = in.Await(builder_, static_cast<int32_t>(row.message.pieces.size()));
    for (const StreamPiece& piece : row.message.pieces) {
      std::vector<Place> sources;
      for (int32_t sender = 0; sender < group_.per_node; ++sender) {
        if (sender == group_.local()) {
          sources.push_back({Buffer::kGradient, piece.parameter, piece.gradient_element * DTypeBytes(piece.dtype)});
        } else {
          sources.push_back({Buffer::kArena, 0, RowSlot(sender, group_.local(), slots[sender]) + piece.staged_offset});
        }
      }
      const int64_t sum = plan_.block(row.node) + (piece.stream_element - Begin(round)) * kSumBytes;
      const Place destination =
          plan_.direct ? Place{Buffer::kOutput, piece.parameter, piece.shard_element * kSumBytes} : Place{Buffer::kArena, 0, sum};
      builder_.Sum(piece.dtype, std::move(sources), destination, piece.elements);
    }
    for (InChannel& in : rows_in_) in.Release(builder_);
  }

  void Write(int32_t round) {
    if (plan_.direct) return;
    const GradientStream own(layout_, unit_, group_.self, options_.gradient_dtype);
    for (const StreamPiece& piece : own.Cut(Begin(round), End(round))) {
      builder_.Compute(StepKind::kScale, DType::kFloat32,
                       {Buffer::kArena, 0, plan_.block(group_.node()) + (piece.stream_element - Begin(round)) * kSumBytes},
                       {Buffer::kOutput, piece.parameter, piece.shard_element * kSumBytes}, piece.elements);
    }
  }

  const Layout& layout_;
  const int32_t unit_;
  const Group& group_;
  const ScheduleOptions& options_;
  const Plan& plan_;
  ScheduleBuilder builder_;
  std::vector<std::vector<RowMessage>> rows_;     // by local rank whose rail they take
  std::vector<std::vector<int32_t>> round_ends_;  // likewise, by round: position in rows_ behind its last message
  std::vector<OutChannel> rows_out_;              // by local rank; the own one is not used
  std::vector<InChannel> rows_in_;                // by local rank without the own one
  RingPlace rail_place_, replica_place_;
  std::vector<std::vector<SumBlock>> replica_blocks_;  // by round
  std::unique_ptr<RingReduce> rail_, replica_;
};

absl::Status CheckGradients(const Layout& layout, int32_t unit, const ScheduleOptions& options) {
  if (options.gradient_dtype.has_value()) return absl::OkStatus();
  for (const Parameter& parameter : layout.spec().units[unit].parameters) {
    if (parameter.frozen || parameter.gradient_dtype == DType::kBFloat16 || parameter.gradient_dtype == DType::kFloat32) continue;
    return absl::InvalidArgumentError(absl::StrCat("unit '", layout.spec().units[unit].name, "', parameter '", parameter.name,
                                                   "': its gradient is ", DTypeName(parameter.gradient_dtype),
                                                   "; only bfloat16 and float32 are added"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Schedule> ReduceScatterSchedule(const Layout& layout, int32_t unit, const Group& group,
                                               const ScheduleOptions& options) {
  if (absl::Status status = ValidateGroup(layout, unit, group); !status.ok()) return status;
  if (absl::Status status = ValidateScheduleOptions(options); !status.ok()) return status;
  if (absl::Status status = CheckGradients(layout, unit, options); !status.ok()) return status;
  if (layout.units()[unit].reduced_elements == 0) {
    Schedule nothing;
    nothing.collective = "reduce-scatter";
    nothing.unit = layout.spec().units[unit].name;
    nothing.rank = group.rank();
    return nothing;
  }
  const auto plan = MakePlan(layout, unit, group, options);
  if (!plan.ok()) return plan.status();
  return ReduceScatterBuilder(layout, unit, group, options, *plan).Build();
}

int32_t GradientsFreePhase(const Schedule& schedule) {
  int32_t phase = static_cast<int32_t>(schedule.phases.size()) - 1;
  while (phase >= 0 && schedule.phases[phase].name != "rows") --phase;
  return phase;
}

}  // namespace tidetape::collectives
