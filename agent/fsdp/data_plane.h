// The collectives of a model's units over one arena, step by step as FSDP2 asks for them.
//
//   Admit    the unit's slot is free on all ranks that will be written: the caller may write the own shard
//   Send     the own shard lies in its place: it goes to the others
//   Finish   all shards have come: the caller may read
//   Release  nobody here reads any more. The slot's readiness is told at once, so that the next Admit seldom waits; where a
//            reduction is to follow that can use the slot, after that
//   Agree    what the ranks have to reduce, and whether the slot is theirs for it
//   Reduce   in two parts: after the first, gradients may be freed
//
// Admit, Send, Finish, Agree and the reductions come from one thread at a time; Release from any thread at any time. Every wait has
// the executor's limit, and every error names the collective, unit, training step, rank, peer and slot. After an error the plane is
// broken: all further calls return that error.
#ifndef TIDETAPE_AGENT_FSDP_DATA_PLANE_H_
#define TIDETAPE_AGENT_FSDP_DATA_PLANE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "agent/fsdp/gradient_notice.h"
#include "agent/fsdp/notice_board.h"
#include "agent/fsdp/schedule_maker.h"
#include "collectives/executor.h"
#include "collectives/group.h"
#include "collectives/layout.h"
#include "collectives/schedule.h"
#include "collectives/schedule_options.h"
#include "collectives/transport.h"

namespace tidetape::agent {

class DataPlane {
 public:
  struct Options {
    collectives::ScheduleOptions schedule;
    collectives::ExecutorOptions executor;
    // By unit, of all ranks of its mesh: debug mode, in which every schedule is proved before it first runs (schedule_maker.h).
    std::vector<std::vector<collectives::Group>> groups_to_prove;
  };

  // What a transport for the layout must have beyond it: room for the notices at the arena's end, and their signal.
  static uint64_t ArenaBytes(const collectives::Layout& layout, int32_t ranks);
  static int32_t Signals(const collectives::Layout& layout) { return layout.signals() + 1; }

  // `groups`: by unit. The transport is a new one. Says that all slots are free.
  static absl::StatusOr<std::unique_ptr<DataPlane>> Create(collectives::Layout layout, std::vector<collectives::Group> groups,
                                                           std::unique_ptr<collectives::Transport> transport,
                                                           const Options& options);

  int rank() const { return transport_->rank(); }
  const collectives::Layout& layout() const { return layout_; }
  const collectives::Group& group(int32_t unit) const { return maker_.group(unit); }
  absl::Span<std::byte> arena() { return transport_->arena(); }
  // Of what this rank runs, for logs: the unit's all-gather, and its reduction as long as nothing out of the ordinary is asked for;
  // 0 where no reduction was made yet.
  uint64_t GatherHash(int32_t unit) const { return gathers_[unit].schedule.hash(); }
  uint64_t ReduceHash(int32_t unit) const;
  // In debug mode, of what was proved at the start for all ranks of the unit's mesh, by rank of the transport.
  const ScheduleMaker::Hashes& ProvedGathers(int32_t unit) const { return proved_gathers_[unit]; }
  const ScheduleMaker::Hashes& ProvedReductions(int32_t unit) const { return proved_reductions_[unit]; }

  // The unit whose shards lie in the unit's slot, or are on their way there; -1 where it is free.
  int32_t Holder(int32_t unit) const;

  // `reduction_next`: gradients of the unit are to be reduced after its release. A hint: where it is wrong, rows are staged beside
  // the slot, or the slot is told ready only when it is wanted next.
  absl::Status Admit(int32_t unit, bool reduction_next, int64_t training_step);
  absl::Status Send(int32_t unit, int64_t training_step);
  absl::Status Finish(int32_t unit, int64_t training_step);
  void Release(int32_t unit);

  // The plane itself fills in whether the slot is vacated.
  absl::StatusOr<GradientNotice> Agree(GradientNotice own, int64_t training_step);
  // `agreed` is what Agree returned. The outputs are final after the second call.
  absl::Status ReduceGradients(const GradientNotice& agreed, const collectives::ReduceBuffers& buffers, int64_t training_step);
  absl::Status FinishReduction(const GradientNotice& agreed, const collectives::ReduceBuffers& buffers, int64_t training_step);

 private:
  struct Gather {
    collectives::Schedule schedule;
    int32_t admit_phase = -1;  // -1 where the slot is the rank's own
    int32_t sent = 0;          // steps of the last phase up to here do not wait for shards
    bool ready_early = false;  // all units of the slot say the same, so it can be said before it is known which one is next
  };
  struct Slot {
    int32_t holder = -1;
    bool said_ready = false;
    bool kept_for_reduction = false;  // ready is told after the reduction of the last holder
  };
  // Unit, dtype, place of staging and factor.
  using ReductionKey = std::tuple<int32_t, bool, bool, double>;
  static ReductionKey KeyOf(const GradientNotice& agreed) {
    return {agreed.unit, agreed.widened, agreed.slot_vacated, agreed.divide_factor};
  }

  DataPlane(collectives::Layout layout, std::vector<collectives::Group> groups, std::unique_ptr<collectives::Transport> transport,
            const Options& options);
  absl::Status MakeGathers();
  absl::Status SayReady(const collectives::Schedule& schedule);
  // Whether rows of the unit wait in its slot, if it is vacated.
  bool StagesInSlot(int32_t unit) const {
    const collectives::Region& staging = layout_.units()[unit].staging;
    return staging.bytes > 0 && staging.offset != layout_.staging().offset;
  }
  // Tells the slot's readiness before it is known which unit comes next, where nothing is in its way.
  absl::Status SayReadyEarly(int32_t unit);
  absl::Status ProveReduction(int32_t unit);
  // What ranks reduce as long as nothing out of the ordinary is asked for.
  GradientNotice Ordinary(int32_t unit) const;
  absl::StatusOr<const collectives::Schedule*> ReduceSchedule(const GradientNotice& agreed,
                                                              ScheduleMaker::Hashes* proved = nullptr);
  absl::Status Keep(absl::Status status);
  // With the collective, unit, slot, step and rank in front; `what` was being done.
  absl::Status Named(const absl::Status& status, const char* collective, int32_t unit, const char* what,
                     int64_t training_step) const;

  const collectives::Layout layout_;
  const std::unique_ptr<collectives::Transport> transport_;
  const Options options_;
  const ScheduleMaker maker_;
  std::vector<std::string> unit_names_;
  collectives::Executor executor_;
  NoticeBoard board_;
  std::vector<Gather> gathers_;                                            // by unit
  std::vector<ScheduleMaker::Hashes> proved_gathers_, proved_reductions_;  // by unit
  std::map<ReductionKey, collectives::Schedule> reductions_;
  absl::Status broken_;

  mutable std::mutex mutex_;
  std::vector<Slot> slots_;
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_FSDP_DATA_PLANE_H_
