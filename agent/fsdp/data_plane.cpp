#include "agent/fsdp/data_plane.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/reduce_scatter_schedule.h"

namespace tidetape::agent {
namespace {

using collectives::CollectiveKind;
using collectives::DType;
using collectives::Group;
using collectives::Layout;
using collectives::Schedule;
using collectives::Step;
using collectives::StepKind;

uint64_t NoticeBytes(const Layout& layout) {
  size_t parameters = 0;
  for (const auto& unit : layout.units()) parameters = std::max(parameters, unit.parameters.size());
  return GradientNotice::EncodedBytes(parameters);
}

bool SameSignals(const Schedule& a, const Schedule& b) {
  const auto same = [](const Step& x, const Step& y) { return x.kind == y.kind && x.peer == y.peer && x.signal == y.signal; };
  return std::equal(a.steps.begin() + a.begin(0), a.steps.begin() + a.end(0), b.steps.begin() + b.begin(0),
                    b.steps.begin() + b.end(0), same);
}

}  // namespace

uint64_t DataPlane::ArenaBytes(const Layout& layout, int32_t ranks) {
  return static_cast<uint64_t>(layout.arena_bytes()) + NoticeBoard::Bytes(NoticeBytes(layout), ranks);
}

absl::StatusOr<std::unique_ptr<DataPlane>> DataPlane::Create(Layout layout, std::vector<Group> groups,
                                                             std::unique_ptr<collectives::Transport> transport,
                                                             const Options& options) {
  std::unique_ptr<DataPlane> plane(new DataPlane(std::move(layout), std::move(groups), std::move(transport), options));
  if (absl::Status status = plane->MakeGathers(); !status.ok()) return status;
  return plane;
}

DataPlane::DataPlane(Layout layout, std::vector<Group> groups, std::unique_ptr<collectives::Transport> transport,
                     const Options& options)
    : layout_(std::move(layout)),
      transport_(std::move(transport)),
      options_(options),
      maker_(layout_, std::move(groups), options.groups_to_prove),
      executor_(*transport_, options.executor),
      board_(*transport_, layout_.arena_bytes(), NoticeBytes(layout_), layout_.signals()),
      proved_gathers_(layout_.units().size()),
      proved_reductions_(layout_.units().size()),
      slots_(layout_.slots().size()) {
  for (const auto& unit : layout_.spec().units) unit_names_.push_back(unit.name);
}

absl::Status DataPlane::MakeGathers() {
  for (int32_t unit = 0; unit < static_cast<int32_t>(layout_.units().size()); ++unit) {
    auto schedule = maker_.Make(CollectiveKind::kAllGather, unit, options_.schedule, &proved_gathers_[unit]);
    if (!schedule.ok()) return schedule.status();
    if (maker_.proves()) {
      if (absl::Status status = ProveReduction(unit); !status.ok()) return status;
    }
    Gather gather;
    gather.schedule = *std::move(schedule);
    if (gather.schedule.phases.size() == 3) gather.admit_phase = 1;
    const int32_t last = static_cast<int32_t>(gather.schedule.phases.size()) - 1;
    const int32_t data = layout_.GatherSignal(layout_.units()[unit].slot);
    gather.sent = gather.schedule.begin(last);
    while (gather.sent < gather.schedule.end(last)) {
      const Step& step = gather.schedule.steps[gather.sent];
      if (step.kind == StepKind::kWait && step.signal == data) break;
      ++gather.sent;
    }
    gathers_.push_back(std::move(gather));
  }
  for (int32_t slot = 0; slot < static_cast<int32_t>(slots_.size()); ++slot) {
    const Gather* first = nullptr;
    bool alike = true;
    for (size_t unit = 0; unit < gathers_.size(); ++unit) {
      if (layout_.units()[unit].slot != slot) continue;
      if (first == nullptr) first = &gathers_[unit];
      alike = alike && SameSignals(first->schedule, gathers_[unit].schedule);
    }
    for (size_t unit = 0; unit < gathers_.size(); ++unit) {
      if (layout_.units()[unit].slot == slot) gathers_[unit].ready_early = alike;
    }
    if (first == nullptr || !alike) continue;
    if (absl::Status status = SayReady(first->schedule); !status.ok()) return status;
    slots_[slot].said_ready = true;
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

absl::Status DataPlane::ProveReduction(int32_t unit) { return ReduceSchedule(Ordinary(unit), &proved_reductions_[unit]).status(); }

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

absl::Status DataPlane::SayReady(const Schedule& schedule) {
  for (int32_t i = schedule.begin(0); i < schedule.end(0); ++i) {
    if (absl::Status status = transport_->Signal(schedule.steps[i].peer, schedule.steps[i].signal); !status.ok()) return status;
  }
  return absl::OkStatus();
}

int32_t DataPlane::Holder(int32_t unit) const {
  const std::lock_guard lock(mutex_);
  return slots_[layout_.units()[unit].slot].holder;
}

absl::Status DataPlane::Admit(int32_t unit, bool reduction_next, int64_t training_step) {
  if (!broken_.ok()) return broken_;
  const Gather& gather = gathers_[unit];
  bool said_ready = false;
  {
    const std::lock_guard lock(mutex_);
    Slot& slot = slots_[layout_.units()[unit].slot];
    if (slot.holder >= 0) {
      return absl::InternalError(
          absl::StrCat("unit '", unit_names_[unit], "' wants a slot that unit '", unit_names_[slot.holder], "' holds"));
    }
    slot.holder = unit;
    slot.kept_for_reduction = reduction_next && StagesInSlot(unit);
    said_ready = std::exchange(slot.said_ready, false);
  }
  if (!said_ready) {
    absl::Status status = Named(SayReady(gather.schedule), "all-gather", unit, "telling that the slot is free", training_step);
    if (!status.ok()) return Keep(status);
  }
  if (gather.admit_phase < 0) return absl::OkStatus();
  return Keep(executor_.RunPhase(gather.schedule, gather.admit_phase, {}, training_step));
}

absl::Status DataPlane::Send(int32_t unit, int64_t training_step) {
  if (!broken_.ok()) return broken_;
  const Gather& gather = gathers_[unit];
  const int32_t last = static_cast<int32_t>(gather.schedule.phases.size()) - 1;
  return Keep(executor_.RunSteps(gather.schedule, last, gather.schedule.begin(last), gather.sent, {}, training_step));
}

absl::Status DataPlane::Finish(int32_t unit, int64_t training_step) {
  if (!broken_.ok()) return broken_;
  const Gather& gather = gathers_[unit];
  const int32_t last = static_cast<int32_t>(gather.schedule.phases.size()) - 1;
  return Keep(executor_.RunSteps(gather.schedule, last, gather.sent, gather.schedule.end(last), {}, training_step));
}

void DataPlane::Release(int32_t unit) {
  {
    const std::lock_guard lock(mutex_);
    Slot& slot = slots_[layout_.units()[unit].slot];
    slot.holder = -1;
    if (slot.kept_for_reduction) return;
  }
  // A lost peer shows at the next wait.
  SayReadyEarly(unit).IgnoreError();
}

absl::Status DataPlane::SayReadyEarly(int32_t unit) {
  const Gather& gather = gathers_[unit];
  {
    const std::lock_guard lock(mutex_);
    Slot& slot = slots_[layout_.units()[unit].slot];
    if (slot.holder >= 0 || slot.said_ready || !gather.ready_early) return absl::OkStatus();
    slot.said_ready = true;
    slot.kept_for_reduction = false;
  }
  return SayReady(gather.schedule);
}

absl::StatusOr<GradientNotice> DataPlane::Agree(GradientNotice own, int64_t training_step) {
  if (!broken_.ok()) return broken_;
  const Group& group = maker_.group(own.unit);
  const size_t parameters = own.present.size();
  {
    const std::lock_guard lock(mutex_);
    const Slot& slot = slots_[layout_.units()[own.unit].slot];
    // Once it is told ready, others may write there.
    own.slot_vacated = StagesInSlot(own.unit) && slot.holder < 0 && !slot.said_ready;
  }
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
  return own;
}

absl::StatusOr<const Schedule*> DataPlane::ReduceSchedule(const GradientNotice& agreed, ScheduleMaker::Hashes* proved) {
  const auto found = reductions_.find(KeyOf(agreed));
  if (found != reductions_.end()) return &found->second;
  collectives::ScheduleOptions options = options_.schedule;
  options.divide_factor = agreed.divide_factor;
  options.slot_vacated = agreed.slot_vacated;
  if (agreed.widened) options.gradient_dtype = DType::kFloat32;
  auto schedule = maker_.Make(CollectiveKind::kReduceScatter, agreed.unit, options, proved);
  if (!schedule.ok()) return Keep(schedule.status());
  return &reductions_.emplace(KeyOf(agreed), *std::move(schedule)).first->second;
}

absl::Status DataPlane::ReduceGradients(const GradientNotice& agreed, const collectives::ReduceBuffers& buffers,
                                        int64_t training_step) {
  if (!broken_.ok()) return broken_;
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
  const auto schedule = ReduceSchedule(agreed);
  if (!schedule.ok()) return schedule.status();
  const int32_t phases = static_cast<int32_t>((*schedule)->phases.size());
  for (int32_t phase = collectives::GradientsFreePhase(**schedule) + 1; phase < phases; ++phase) {
    if (absl::Status status = Keep(executor_.RunPhase(**schedule, phase, buffers, training_step)); !status.ok()) return status;
  }
  return Keep(Named(SayReadyEarly(agreed.unit), "reduce-scatter", agreed.unit, "telling that the slot is free", training_step));
}

absl::Status DataPlane::Keep(absl::Status status) {
  if (!status.ok() && broken_.ok()) broken_ = status;
  return status;
}

}  // namespace tidetape::agent
