#include "agent/fsdp/data_plane.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/reduce_scatter_schedule.h"
#include "collectives/stable_hash.h"

namespace tidetape::agent {
namespace {

using collectives::CollectiveKind;
using collectives::DType;
using collectives::Group;
using collectives::Layout;
using collectives::Schedule;
using collectives::ScheduleOptions;
using collectives::Step;
using collectives::StepKind;

uint64_t NoticeBytes(const Layout& layout) {
  size_t parameters = 0;
  for (const auto& unit : layout.units()) parameters = std::max(parameters, unit.parameters.size());
  return GradientNotice::EncodedBytes(parameters);
}

// Where the readies lie: after the notices, which end on a multiple of 64.
uint64_t ReadyOffset(const Layout& layout, int32_t ranks) {
  return (static_cast<uint64_t>(layout.arena_bytes()) + 7) / 8 * 8 + NoticeBoard::Bytes(NoticeBytes(layout), ranks);
}

ScheduleOptions ReduceOptions(ScheduleOptions options, const GradientNotice& agreed) {
  options.divide_factor = agreed.divide_factor;
  options.slot_vacated = agreed.slot_vacated;
  if (agreed.widened) options.gradient_dtype = DType::kFloat32;
  return options;
}

// Adds the time from here to the end of its life to a sum.
class Stopwatch {
 public:
  Stopwatch(std::mutex& mutex, double& sum) : mutex_(mutex), sum_(sum) {}
  ~Stopwatch() {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
    const std::lock_guard lock(mutex_);
    sum_ += passed.count();
  }
  Stopwatch(const Stopwatch&) = delete;

 private:
  std::mutex& mutex_;
  double& sum_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

uint64_t DataPlane::ArenaBytes(const Layout& layout, int32_t ranks) {
  return ReadyOffset(layout, ranks) + ReadyBoard::Bytes(ranks, static_cast<int32_t>(layout.slots().size()));
}

absl::StatusOr<std::unique_ptr<DataPlane>> DataPlane::Create(Layout layout, std::vector<Group> groups,
                                                             std::unique_ptr<collectives::Transport> transport,
                                                             const Options& options) {
  std::unique_ptr<DataPlane> plane(new DataPlane(std::move(layout), std::move(groups), std::move(transport), options));
  auto gathers =
      MakeGathers(plane->layout_, plane->maker_, options.pacing.schedule, options.pacing.generation, &plane->proved_gathers_);
  if (!gathers.ok()) return gathers.status();
  for (int32_t unit = 0; plane->maker_.proves() && unit < static_cast<int32_t>(gathers->size()); ++unit) {
    if (absl::Status status = plane->ProveReduction(unit); !status.ok()) return status;
  }
  const std::lock_guard lock(plane->mutex_);
  plane->gathers_ = *std::move(gathers);
  if (absl::Status status = plane->SayEarlyReadies(); !status.ok()) return status;
  return plane;
}

DataPlane::DataPlane(Layout layout, std::vector<Group> groups, std::unique_ptr<collectives::Transport> transport,
                     const Options& options)
    : layout_(std::move(layout)),
      transport_(std::move(transport)),
      options_(options),
      maker_(layout_, std::move(groups), options.groups_to_prove),
      executor_(*transport_, WithCheck(options.executor, this)),
      board_(*transport_, layout_.arena_bytes(), NoticeBytes(layout_), layout_.signals()),
      proved_reductions_(layout_.units().size()),
      readies_(*transport_, ReadyOffset(layout_, transport_->size()), static_cast<int32_t>(layout_.slots().size())),
      pacing_(options.pacing),
      slots_(layout_.slots().size()) {
  for (const auto& unit : layout_.spec().units) unit_names_.push_back(unit.name);
}

collectives::ExecutorOptions DataPlane::WithCheck(collectives::ExecutorOptions options, DataPlane* plane) {
  options.after_wait = [plane](int32_t peer, int32_t signal) { return plane->CheckReady(peer, signal); };
  return options;
}

// The one under way in the unit's slot, or the next one.
std::shared_ptr<const Gather> DataPlane::GatherOf(int32_t unit) const {
  const std::lock_guard lock(mutex_);
  const Slot& slot = slots_[layout_.units()[unit].slot];
  return slot.holder == unit ? slot.gather : gathers_[unit];
}

absl::Status DataPlane::SayReady(const Gather& gather, int32_t begin, int32_t end) {
  for (int32_t i = begin; i < end; ++i) {
    const Step& step = gather.schedule.steps[i];
    if (absl::Status status = readies_.Say(step.peer, gather.slot, step.signal, gather.generation); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status DataPlane::SayReadyEarly(const std::shared_ptr<const Gather>& gather) {
  Slot& slot = slots_[gather->slot];
  if (agreeing_ || slot.holder >= 0 || slot.said_ready || slot.kept_for_reduction || !gather->ready_early) return absl::OkStatus();
  slot.said_ready = true;
  slot.gather = gather;
  return SayReady(*gather);
}

absl::Status DataPlane::SayEarlyReadies() {
  for (const auto& gather : gathers_) {
    if (absl::Status status = SayReadyEarly(gather); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status DataPlane::CheckReady(int32_t peer, int32_t signal) const {
  for (int32_t slot = 0; slot < static_cast<int32_t>(slots_.size()); ++slot) {
    if (signal == layout_.ReadySignal(slot)) return readies_.Check(peer, slot, running_generation_);
  }
  return absl::OkStatus();
}

GradientNotice DataPlane::Ordinary(int32_t unit) const {
  const Group& group = maker_.group(unit);
  GradientNotice notice;
  notice.unit = unit;
  notice.divide_factor = static_cast<double>(group.shards.size() * std::max<size_t>(1, group.replicas.size()));
  notice.slot_vacated = StagesInSlot(unit);
  return notice;
}

uint64_t DataPlane::ReduceHash(int32_t unit) const {
  const auto found = reductions_.find(KeyOf(Ordinary(unit)));
  return found == reductions_.end() ? 0 : found->second.hash();
}

absl::Status DataPlane::Named(const absl::Status& status, const char* collective, int32_t unit, const char* what,
                              int64_t training_step) const {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(collective, " of '", unit_names_[unit], "' in slot ", layout_.units()[unit].slot,
                                   ", training step ", training_step, ", rank ", rank(), ", ", what, ": ", status.message()));
}

int32_t DataPlane::Holder(int32_t unit) const {
  const std::lock_guard lock(mutex_);
  return slots_[layout_.units()[unit].slot].holder;
}

absl::Status DataPlane::RunGather(const Gather& gather, int32_t phase, int32_t begin, int32_t end, int64_t training_step) {
  const Stopwatch watch(mutex_, counts_.gather_seconds);
  running_generation_ = gather.generation;
  return Keep(executor_.RunSteps(gather.schedule, phase, begin, end, {}, training_step));
}

absl::Status DataPlane::Admit(int32_t unit, bool reduction_next, int64_t training_step) {
  if (!broken_.ok()) return broken_;
  std::shared_ptr<const Gather> gather;
  {
    const std::lock_guard lock(mutex_);
    gather = gathers_[unit];
    Slot& slot = slots_[gather->slot];
    if (slot.holder >= 0) {
      return absl::InternalError(
          absl::StrCat("unit '", unit_names_[unit], "' wants a slot that unit '", unit_names_[slot.holder], "' holds"));
    }
    slot.holder = unit;
    slot.gather = gather;
    slot.kept_for_reduction = reduction_next && StagesInSlot(unit);
    if (!std::exchange(slot.said_ready, false)) {
      absl::Status status = Named(SayReady(*gather), "all-gather", unit, "telling that the slot is free", training_step);
      if (!status.ok()) return Keep(status);
    }
    counts_.gathered_bytes += gather->gathered_bytes;
    counts_.network_bytes += gather->network_bytes;
  }
  const int32_t phase = gather->admit_phase;
  if (phase < 0) return absl::OkStatus();
  absl::Status status = RunGather(*gather, phase, gather->schedule.begin(phase), gather->admitted, training_step);
  if (!status.ok()) return status;
  const std::lock_guard lock(mutex_);
  return Keep(Named(SayReady(*gather, gather->admitted, gather->schedule.end(phase)), "all-gather", unit,
                    "telling other hosts that the slot is free", training_step));
}

absl::Status DataPlane::Send(int32_t unit, int64_t training_step) {
  if (!broken_.ok()) return broken_;
  const std::shared_ptr<const Gather> gather = GatherOf(unit);
  const int32_t last = gather->last_phase();
  return RunGather(*gather, last, gather->schedule.begin(last), gather->sent, training_step);
}

absl::Status DataPlane::Finish(int32_t unit, int64_t training_step) {
  if (!broken_.ok()) return broken_;
  const std::shared_ptr<const Gather> gather = GatherOf(unit);
  const int32_t last = gather->last_phase();
  return RunGather(*gather, last, gather->sent, gather->schedule.end(last), training_step);
}

void DataPlane::Release(int32_t unit) {
  const std::lock_guard lock(mutex_);
  slots_[layout_.units()[unit].slot].holder = -1;
  // A lost peer shows at the next wait.
  SayReadyEarly(gathers_[unit]).IgnoreError();
}

absl::Status DataPlane::Arm(const PacingCandidate& candidate) {
  const int64_t in_force = pacing().generation;
  if (candidate.generation <= in_force) {
    return absl::InvalidArgumentError(
        absl::StrCat("pacing generation ", candidate.generation, " is not above ", in_force, ", which is in force"));
  }
  auto gathers = MakeGathers(layout_, maker_, candidate.schedule, candidate.generation);
  if (!gathers.ok()) return gathers.status();
  // Made when they are needed; here only to know that they can be.
  for (int32_t unit = 0; unit < static_cast<int32_t>(layout_.units().size()); ++unit) {
    GradientNotice notice = Ordinary(unit);
    const bool in_slot = StagesInSlot(unit), beside = !in_slot || layout_.staging().bytes > 0;
    for (const bool vacated : {false, true}) {
      if (!(vacated ? in_slot : beside)) continue;
      for (const bool widened : {false, true}) {
        notice.slot_vacated = vacated;
        notice.widened = widened;
        const auto reduction = maker_.Make(CollectiveKind::kReduceScatter, unit, ReduceOptions(candidate.schedule, notice));
        if (!reduction.ok()) return reduction.status();
      }
    }
  }
  auto armed = std::make_shared<const Armed>(Armed{candidate, *std::move(gathers)});
  const std::lock_guard lock(mutex_);
  armed_ = std::move(armed);
  return absl::OkStatus();
}

PacingCandidate DataPlane::pacing() const {
  const std::lock_guard lock(mutex_);
  return pacing_;
}

CollectiveCounts DataPlane::TakeCounts() {
  const std::lock_guard lock(mutex_);
  return std::exchange(counts_, {});
}

// Only notices that all ranks of the transport have merged decide for all of them.
bool DataPlane::MaySwitch(const GradientNotice& agreed) const {
  const Group& group = maker_.group(agreed.unit);
  const size_t ranks = group.shards.size() * std::max<size_t>(1, group.replicas.size());
  return agreed.pacing.armed_by_all && agreed.pacing.armed > agreed.pacing.in_force &&
         ranks == static_cast<size_t>(transport_->size());
}

// The peers' words that the gather would wait for, as far as they are said early: they were sent before the notices that led here.
// Where ranks share the slot, other hosts are told only when it is admitted.
absl::Status DataPlane::TakeBackReady(const Gather& gather) {
  const Schedule& schedule = gather.schedule;
  const int32_t signal = layout_.ReadySignal(gather.slot);
  const int32_t end = gather.admit_phase < 0 ? static_cast<int32_t>(schedule.steps.size()) : gather.admitted;
  for (int32_t i = schedule.end(0); i < end; ++i) {
    const Step& step = schedule.steps[i];
    if (step.kind != StepKind::kWait || step.signal != signal) continue;
    absl::Status status = transport_->WaitSignal(step.peer, signal, step.count, absl::Now() + options_.executor.wait_limit);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status DataPlane::Switch(const Armed& armed) {
  for (Slot& slot : slots_) {
    if (!std::exchange(slot.said_ready, false)) continue;
    if (absl::Status status = TakeBackReady(*slot.gather); !status.ok()) return status;
  }
  gathers_ = armed.gathers;
  reductions_.clear();
  pacing_ = armed.candidate;
  if (armed_.get() == &armed) armed_ = nullptr;
  if (options_.set_network_pacing != nullptr) options_.set_network_pacing(pacing_.network);
  return absl::OkStatus();
}

std::shared_ptr<const DataPlane::Armed> DataPlane::Notify(GradientNotice& own) {
  const std::lock_guard lock(mutex_);
  const Slot& slot = slots_[layout_.units()[own.unit].slot];
  // Once it is told ready, others may write there.
  own.slot_vacated = StagesInSlot(own.unit) && slot.holder < 0 && !slot.said_ready;
  own.pacing.in_force = pacing_.generation;
  if (armed_ != nullptr) {
    own.pacing.armed = armed_->candidate.generation;
    own.pacing.armed_hash = armed_->candidate.hash();
  }
  collectives::StableHash told;
  for (const Slot& each : slots_) told.Add(int64_t{each.said_ready});
  own.pacing.told_hash = told.value();
  agreeing_ = true;
  return armed_;
}

absl::Status DataPlane::Settle(const GradientNotice& agreed, const std::shared_ptr<const Armed>& armed) {
  const std::lock_guard lock(mutex_);
  agreeing_ = false;
  if (armed != nullptr && MaySwitch(agreed)) {
    if (absl::Status status = Switch(*armed); !status.ok()) return status;
  }
  return SayEarlyReadies();
}

absl::StatusOr<GradientNotice> DataPlane::Agree(GradientNotice own, int64_t training_step) {
  if (!broken_.ok()) return broken_;
  const Stopwatch watch(mutex_, counts_.reduce_seconds);
  const Group& group = maker_.group(own.unit);
  const size_t parameters = own.present.size();
  const std::shared_ptr<const Armed> armed = Notify(own);
  // First along the shards, then along the copies: so all ranks of the mesh have merged all notices.
  for (const std::vector<int32_t>* peers : {&group.shards, &group.replicas}) {
    if (peers->size() < 2) continue;
    // Of one size for all units: ranks that reduce different ones must find out.
    std::string record = own.Encode();
    record.resize(NoticeBytes(layout_));
    auto records = board_.Exchange(*peers, record, absl::Now() + options_.executor.wait_limit);
    absl::Status status = records.status();
    for (size_t i = 0; status.ok() && i < records->size(); ++i) {
      status = own.Merge(GradientNotice::Decode((*records)[i], parameters), (*peers)[i], unit_names_);
    }
    if (status.ok()) continue;
    return Keep(Named(status, "reduce-scatter", own.unit, "notices", training_step));
  }
  absl::Status status = Named(Settle(own, armed), "reduce-scatter", own.unit, "telling again which slots are free", training_step);
  if (!status.ok()) return Keep(status);
  return own;
}

absl::StatusOr<const Schedule*> DataPlane::ReduceSchedule(const GradientNotice& agreed, ScheduleMaker::Hashes* proved) {
  const auto found = reductions_.find(KeyOf(agreed));
  if (found != reductions_.end()) return &found->second;
  auto schedule = maker_.Make(CollectiveKind::kReduceScatter, agreed.unit, ReduceOptions(pacing().schedule, agreed), proved);
  if (!schedule.ok()) return Keep(schedule.status());
  return &reductions_.emplace(KeyOf(agreed), *std::move(schedule)).first->second;
}

absl::Status DataPlane::ReduceGradients(const GradientNotice& agreed, const collectives::ReduceBuffers& buffers,
                                        int64_t training_step) {
  if (!broken_.ok()) return broken_;
  const Stopwatch watch(mutex_, counts_.reduce_seconds);
  const auto schedule = ReduceSchedule(agreed);
  if (!schedule.ok()) return schedule.status();
  for (int32_t phase = 0; phase <= collectives::GradientsFreePhase(**schedule); ++phase) {
    if (absl::Status status = Keep(executor_.RunPhase(**schedule, phase, buffers, training_step)); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status DataPlane::FinishReduction(const GradientNotice& agreed, const collectives::ReduceBuffers& buffers,
                                        int64_t training_step) {
  if (!broken_.ok()) return broken_;
  const Stopwatch watch(mutex_, counts_.reduce_seconds);
  const auto schedule = ReduceSchedule(agreed);
  if (!schedule.ok()) return schedule.status();
  const int32_t phases = static_cast<int32_t>((*schedule)->phases.size());
  for (int32_t phase = collectives::GradientsFreePhase(**schedule) + 1; phase < phases; ++phase) {
    if (absl::Status status = Keep(executor_.RunPhase(**schedule, phase, buffers, training_step)); !status.ok()) return status;
  }
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_[layout_.units()[agreed.unit].slot];
  if (slot.holder < 0) slot.kept_for_reduction = false;  // else it is the next holder's reduction that it will be kept for
  return Keep(
      Named(SayReadyEarly(gathers_[agreed.unit]), "reduce-scatter", agreed.unit, "telling that the slot is free", training_step));
}

absl::Status DataPlane::Keep(absl::Status status) {
  if (!status.ok() && broken_.ok()) broken_ = status;
  return status;
}

}  // namespace tidetape::agent
