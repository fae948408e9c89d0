#include "agent/tape/tape.h"

#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <utility>

#include "agent/measure/step_profile.h"
#include "agent/tape/open_tapes.h"

namespace tidetape::agent {
namespace {

bool GoesToHost(const StorageRecord& record) { return record.move && record.kept && record.kind != StorageKind::kParameter; }

}  // namespace

Tape::~Tape() { LetGo(); }

void Tape::LetGo() {
  if (!std::exchange(closed_, true)) {
    open_tapes::Remove(*this);
    observer_->OnAbandoned(*this);
  }
  for (size_t i = 0; i < storages.size(); ++i) {
    DropKept(static_cast<int32_t>(i));
    DropReplayed(static_cast<int32_t>(i));
  }
  storages.clear();
  constants.clear();
  exposed.clear();
}

at::Tensor Tape::Build(const ValueRef& value, const StorageRef& storage) const {
  return views.Build(value.view, c10::Storage(storage));
}

void Tape::Keep(int32_t storage, StorageRef original) {
  StorageRecord& record = storages[storage];
  if (record.kept) return;
  record.kept = std::move(original);
  if (record.kind == StorageKind::kIntermediate) StepProfile::Get().AddPlanned(record.bytes);
}

void Tape::DropKept(int32_t storage) {
  StorageRecord& record = storages[storage];
  if (record.away >= 0) {
    const AwayValue left = std::move(away[std::exchange(record.away, -1)]);
    // The bases count an input as if it had stayed, and a planned value not at all.
    if (left.gone && !left.arriving) StepProfile::Get().AddPlanned(record.bytes);
    if (record.kind == StorageKind::kIntermediate && left.arriving) StepProfile::Get().AddPlanned(-record.bytes);
  }
  if (!record.kept) return;
  record.kept.reset();
  if (record.kind == StorageKind::kIntermediate) StepProfile::Get().AddPlanned(-record.bytes);
}

std::vector<const c10::StorageImpl*> Tape::ReadLater() const {
  std::vector<const c10::StorageImpl*> read;
  for (const StorageRecord& record : storages) {
    if (record.kept && record.ReadByReplays()) read.push_back(record.kept.get());
  }
  for (const auto& [storage, original] : exposed) read.push_back(original._unsafe_get_target());
  return read;
}

void Tape::UseCopy(int32_t storage, StorageRef copy) {
  StorageRecord& record = storages[storage];
  record.kept = std::move(copy);
  record.copied = true;
  open_tapes::Watch(*this, *record.kept);
}

void Tape::ReadOverwritten(const StorageRef& original) {
  for (const auto& [storage, exposed] : exposed) {
    if (exposed._unsafe_get_target() != original.get() || storages[storage].handles == 0 || Overwritten(storage)) continue;
    overwritten_.emplace_back(storage, original);
  }
}

int32_t Tape::Latest(int32_t storage) const {
  for (const auto& [before, after] : continued) {  // in order of the writes
    if (before == storage) storage = after;
  }
  return storage;
}

StorageRef Tape::Overwritten(int32_t storage) const {
  for (const auto& [overwritten, original] : overwritten_) {
    if (overwritten == storage) return original;
  }
  return {};
}

void Tape::DropOverwritten(int32_t storage) {
  const auto gone =
      std::find_if(overwritten_.begin(), overwritten_.end(), [&](const auto& entry) { return entry.first == storage; });
  if (gone != overwritten_.end()) overwritten_.erase(gone);
}

void Tape::MoveAway(int32_t storage) {
  StorageRecord& record = storages[storage];
  std::unique_ptr<HostCopy> copy = MoveToHost(record.kept);
  if (copy == nullptr) return;
  away.push_back({std::move(copy), c10::weak_intrusive_ptr<c10::StorageImpl>(record.kept)});
  DropKept(storage);
  // Whoever overwrites the original from now on does not change what replays read.
  record.copied = record.kind != StorageKind::kIntermediate;
  record.away = static_cast<int32_t>(away.size()) - 1;
  moved_bytes += record.bytes;
}

void Tape::Fetch(int32_t storage) {
  const StorageRecord& record = storages[storage];
  AwayValue& value = away[record.away];
  if (std::exchange(value.arriving, true)) return;
  value.copy->Prefetch();
  if (record.kind == StorageKind::kIntermediate || value.gone) StepProfile::Get().AddPlanned(record.bytes);
}

void Tape::BringBack(int32_t storage) {
  Fetch(storage);
  StorageRecord& record = storages[storage];
  record.kept = away[record.away].copy->Get();
  away[std::exchange(record.away, -1)] = {};
  open_tapes::Watch(*this, *record.kept);
}

void Tape::Prefetch() {
  const std::lock_guard lock(mutex);
  for (size_t s = 0; s < storages.size(); ++s) {
    if (storages[s].away >= 0) Fetch(static_cast<int32_t>(s));
  }
}

std::vector<Site> Tape::FindHeldInputs() {
  const std::lock_guard lock(mutex);
  std::vector<Site> held;
  if (backward_begun) return held;
  for (const StorageRecord& record : storages) {
    if (record.kind != StorageKind::kBlockInput) continue;
    if (record.away >= 0) {
      AwayValue& value = away[record.away];
      if (value.original.use_count() > 0) continue;
      if (!std::exchange(value.gone, true)) StepProfile::Get().AddPlanned(-record.bytes);
      held.push_back(record.site);
    } else if (record.kept) {
      const int32_t aliases = record.outside < 0 ? 0 : outside_storages[record.outside].aliases;
      if (record.kept.use_count() == 1 + static_cast<size_t>(aliases)) held.push_back(record.site);
    }
  }
  return held;
}

void Tape::SetReplayed(int32_t storage, StorageRef made) {
  StorageRecord& record = storages[storage];
  if (!record.replayed) StepProfile::Get().AddPlanned(record.bytes);
  record.replayed = std::move(made);
}

void Tape::DropReplayed(int32_t storage) {
  StorageRecord& record = storages[storage];
  if (!record.replayed) return;
  record.replayed.reset();
  StepProfile::Get().AddPlanned(-record.bytes);
}

void Tape::ForgetReplay() {
  for (size_t s = 0; s < storages.size(); ++s) {
    DropReplayed(static_cast<int32_t>(s));
    storages[s].replayed_version = 0;
    storages[s].reads_left = 0;
  }
  needed.clear();
  done.clear();
  replay_seconds = 0;
  replayed_ops = 0;
}

void Tape::Prepare() {
  needed.assign(ops.size(), 0);
  done.assign(ops.size(), 0);
  pending_ops = 0;
  for (const int32_t storage : consumed) {
    const StorageRecord& record = storages[storage];
    if (!record.kept && record.handles > 0 && record.last_writer >= 0) needed[record.last_writer] = 1;
  }
  for (size_t i = ops.size(); i-- > 0;) {
    if (!needed[i]) continue;
    ++pending_ops;
    const OpRecord& op = ops[i];
    for (uint32_t v = op.first_value; v < op.first_output; ++v) {
      const ValueRef& value = values[v];
      if (value.storage < 0) continue;
      ++storages[value.storage].reads_left;
      if (value.writer >= 0 && !Has(value)) needed[value.writer] = 1;
    }
  }
  for (size_t s = 0; s < storages.size(); ++s) {
    StorageRecord& record = storages[s];
    if (record.handles > 0 || record.reads_left > 0) continue;
    if (record.kind == StorageKind::kIntermediate || releases_inputs) DropKept(static_cast<int32_t>(s));
  }
}

bool Tape::PlansMoves() const { return std::any_of(storages.begin(), storages.end(), GoesToHost); }

void Tape::MovePlanned() {
  for (size_t s = 0; s < storages.size(); ++s) {
    const StorageRecord& record = storages[s];
    if (GoesToHost(record)) MoveAway(static_cast<int32_t>(s));
    if (record.kept && record.kind == StorageKind::kIntermediate) saved_bytes += record.bytes;
  }
}

void Tape::NoteBackwardAhead() { observer_->OnBackwardAhead(*this); }

void Tape::BeginBackward() {
  if (std::exchange(backward_begun, true)) return;
  observer_->OnBackwardBegin(*this);
}

void Tape::Close() {
  if (std::exchange(closed_, true)) return;
  open_tapes::Remove(*this);
  observer_->OnBackwardEnd(*this);
}

int64_t Tape::BookkeepingBytes() const {
  const auto bytes = [](const auto& items) { return static_cast<int64_t>(items.capacity() * sizeof(items[0])); };
  int64_t constant_lists = 0;
  for (const c10::IValue& constant : constants) {
    if (!constant.isList()) continue;
    constant_lists += static_cast<int64_t>(sizeof(c10::detail::ListImpl) + constant.toListRef().size() * sizeof(c10::IValue));
  }
  return bytes(storages) + bytes(ops) + bytes(arguments) + bytes(lists) + bytes(values) + bytes(writes) + views.Bytes() +
         bytes(constants) + constant_lists + bytes(consumed) + bytes(continued) + bytes(exposed) + bytes(away) +
         bytes(outside_storages) + bytes(needed) + bytes(done);
}

}  // namespace tidetape::agent
