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
// Admit, Send, Finish, Agree and the reductions come from one thread at a time; Release and Arm from any thread at any time. Every
// wait has the executor's limit, and every error names the collective, unit, training step, rank, peer and slot. After an error the
// plane is broken: all further calls return that error.
//
// Pacing. Ranks under different pacings would wait for messages that nobody sends, so all switch at one place among their
// collectives, or none does. Each rank arms a pacing, at any time; what it has armed goes with the notices that Agree merges
// anyway. All ranks that merge the same notices draw the same conclusion, before any of them starts the next collective: where
// every rank of the transport has armed the same generation with the same content, they switch there. A rank that has armed
// nothing, or something else, whatever the reason, holds all of them where they are. There is no message whose loss could split
// them. Gathers that are under way end as they began. Words that slots are free are taken back and said anew: the notices say which
// slots each rank has told free, all must have told the same, and none tells more until the notices are merged; so the words have
// come already, because they were sent before the notices. A slot in which rows are to wait is told free by nobody, so a switch
// leaves it alone: the reduction runs under the new pacing, and after it the slot is told free under that. And since every such
// word, and every notice, carries the generation, a fault in all this would be an error that names both ranks' generations, and no
// hang.
//
// In debug mode the schedules of an armed pacing are proved when it is armed. That all ranks run those of one pacing needs no
// further comparison: they switch only where the hash of what makes the schedules is the same.
#ifndef TIDETAPE_AGENT_FSDP_DATA_PLANE_H_
#define TIDETAPE_AGENT_FSDP_DATA_PLANE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "agent/fsdp/gather_set.h"
#include "agent/fsdp/gradient_notice.h"
#include "agent/fsdp/notice_board.h"
#include "agent/fsdp/pacing_candidate.h"
#include "agent/fsdp/ready_board.h"
#include "agent/fsdp/schedule_maker.h"
#include "collectives/executor.h"
#include "collectives/group.h"
#include "collectives/layout.h"
#include "collectives/schedule.h"
#include "collectives/transport.h"

namespace tidetape::agent {

// What collectives took since they were last asked for. Seconds are of the calling thread, waiting included.
struct CollectiveCounts {
  double gather_seconds = 0;
  double reduce_seconds = 0;
  int64_t gathered_bytes = 0;
  int64_t network_bytes = 0;  // that gathers sent to other hosts
};

class DataPlane {
 public:
  struct Options {
    PacingCandidate pacing;  // of the start; generation 0
    collectives::ExecutorOptions executor;
    // Puts a switch's network pacing in force; not set where the transport has none.
    std::function<void(const collectives::Pacing&)> set_network_pacing = nullptr;
    // By unit, of all ranks of its mesh: debug mode, in which every schedule is proved before it first runs (schedule_maker.h).
    std::vector<std::vector<collectives::Group>> groups_to_prove;
  };

  // What a transport for the layout must have beyond it: room for the notices and the boards at the arena's end, and their signal.
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
  // 0 where no reduction was made yet under the pacing in force.
  uint64_t GatherHash(int32_t unit) const { return GatherOf(unit)->schedule.hash(); }
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

  // From now on this rank is willing to switch to the candidate, in place of what it armed before. InvalidArgument where a schedule
  // cannot be made of it, or its generation is not above the one in force, FailedPrecondition where one is not sound: then what was
  // armed stays.
  absl::Status Arm(const PacingCandidate& candidate);
  // The pacing in force.
  PacingCandidate pacing() const;

  CollectiveCounts TakeCounts();

 private:
  struct Slot {
    int32_t holder = -1;
    std::shared_ptr<const Gather> gather;  // the holder's, or the one whose readiness was said
    bool said_ready = false;
    bool kept_for_reduction = false;  // ready is told after the reduction of the last holder
  };
  struct Armed {
    PacingCandidate candidate;
    GatherSet gathers;
  };
  // Unit, dtype, place of staging and factor.
  using ReductionKey = std::tuple<int32_t, bool, bool, double>;
  static ReductionKey KeyOf(const GradientNotice& agreed) {
    return {agreed.unit, agreed.widened, agreed.slot_vacated, agreed.divide_factor};
  }

  DataPlane(collectives::Layout layout, std::vector<collectives::Group> groups, std::unique_ptr<collectives::Transport> transport,
            const Options& options);
  static collectives::ExecutorOptions WithCheck(collectives::ExecutorOptions options, DataPlane* plane);
  std::shared_ptr<const Gather> GatherOf(int32_t unit) const;
  // Whether rows of the unit wait in its slot, if it is vacated.
  bool StagesInSlot(int32_t unit) const {
    const collectives::Region& staging = layout_.units()[unit].staging;
    return staging.bytes > 0 && staging.offset != layout_.staging().offset;
  }
  // Steps [begin, end) of the schedule, which all say that the slot is free.
  absl::Status SayReady(const Gather& gather, int32_t begin, int32_t end);
  absl::Status SayReady(const Gather& gather) { return SayReady(gather, gather.schedule.begin(0), gather.schedule.end(0)); }
  // Tells that the gather's slot is free before it is known which unit comes next, where nothing is in its way.
  absl::Status SayReadyEarly(const std::shared_ptr<const Gather>& gather);
  // All slots of which that may be told.
  absl::Status SayEarlyReadies();
  absl::Status TakeBackReady(const Gather& gather);
  absl::Status CheckReady(int32_t peer, int32_t signal) const;
  absl::Status RunGather(const Gather& gather, int32_t phase, int32_t begin, int32_t end, int64_t training_step);
  // What goes into the own notice, of the moment in which nothing more is told; what was armed by then.
  std::shared_ptr<const Armed> Notify(GradientNotice& own);
  // Once all notices are merged: switches, where they say so, and tells what was held back.
  absl::Status Settle(const GradientNotice& agreed, const std::shared_ptr<const Armed>& armed);
  bool MaySwitch(const GradientNotice& agreed) const;
  absl::Status Switch(const Armed& armed);
  absl::Status ProveReduction(int32_t unit) { return ReduceSchedule(Ordinary(unit), &proved_reductions_[unit]).status(); }
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
  int64_t running_generation_ = 0;                                         // of the gather that the executor is at
  std::vector<ScheduleMaker::Hashes> proved_gathers_, proved_reductions_;  // by unit
  std::map<ReductionKey, collectives::Schedule> reductions_;               // under the pacing in force
  absl::Status broken_;

  mutable std::mutex mutex_;  // guards all below; held while readiness is said, so that what is said is what is known
  bool agreeing_ = false;     // from the own notice until all are merged: nothing is told that the notice does not say
  ReadyBoard readies_;
  PacingCandidate pacing_;
  GatherSet gathers_;
  std::vector<Slot> slots_;
  std::shared_ptr<const Armed> armed_;
  CollectiveCounts counts_;
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_FSDP_DATA_PLANE_H_
