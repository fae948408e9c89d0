#include "agent/tape/tape.h"

#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <utility>

#include "agent/measure/step_profile.h"
#include "agent/tape/open_tapes.h"

namespace tidetape::agent {

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

uint32_t Tape::NoteGeometry(const c10::TensorImpl& tensor, int32_t known) {
  const c10::IntArrayRef sizes = tensor.sizes();
  const c10::IntArrayRef strides = tensor.strides();
  // An op that left no trace may have taken its geometry with it.
  if (known >= 0 && static_cast<size_t>(known) + 2 + 2 * sizes.size() <= geometry.size()) {
    const int64_t* words = geometry.data() + known;
    if (words[0] == static_cast<int64_t>(sizes.size()) && words[1] == tensor.storage_offset() &&
        std::equal(sizes.begin(), sizes.end(), words + 2) && std::equal(strides.begin(), strides.end(), words + 2 + sizes.size())) {
      return static_cast<uint32_t>(known);
    }
  }
  const auto place = static_cast<uint32_t>(geometry.size());
  geometry.push_back(static_cast<int64_t>(sizes.size()));
  geometry.push_back(tensor.storage_offset());
  geometry.insert(geometry.end(), sizes.begin(), sizes.end());
  geometry.insert(geometry.end(), strides.begin(), strides.end());
  return place;
}

at::Tensor Tape::Build(const ValueRef& value, const StorageRef& storage) const {
  const int64_t* words = geometry.data() + value.geometry;
  const auto dimensions = static_cast<size_t>(words[0]);
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(storage), value.keys, c10::scalarTypeToTypeMeta(value.dtype));
  impl->set_sizes_and_strides(c10::IntArrayRef(words + 2, dimensions), c10::IntArrayRef(words + 2 + dimensions, dimensions),
                              words[1]);
  return at::Tensor(std::move(impl));
}

void Tape::Keep(int32_t storage, StorageRef original) {
  StorageRecord& record = storages[storage];
  if (record.kept) return;
  record.kept = std::move(original);
  if (record.kind == StorageKind::kIntermediate) StepProfile::Get().AddPlanned(record.bytes);
}

void Tape::DropKept(int32_t storage) {
  StorageRecord& record = storages[storage];
  if (record.away >= 0) away[std::exchange(record.away, -1)].reset();
  if (!record.kept) return;
  record.kept.reset();
  if (record.kind == StorageKind::kIntermediate) StepProfile::Get().AddPlanned(-record.bytes);
}

void Tape::UseCopy(int32_t storage, StorageRef copy) {
  StorageRecord& record = storages[storage];
  record.kept = std::move(copy);
  record.copied = true;
}

void Tape::ReadOverwritten(const StorageRef& original) {
  for (const auto& [storage, exposed] : exposed) {
    if (exposed._unsafe_get_target() == original.get() && storages[storage].handles > 0) storages[storage].overwritten = original;
  }
}

void Tape::MoveAway(int32_t storage) {
  StorageRecord& record = storages[storage];
  std::unique_ptr<HostCopy> copy = MoveToHost(record.kept);
  if (copy == nullptr) return;
  DropKept(storage);
  record.away = static_cast<int32_t>(away.size());
  away.push_back(std::move(copy));
  moved_bytes += record.bytes;
}

void Tape::BringBack(int32_t storage) {
  StorageRecord& record = storages[storage];
  Keep(storage, away[record.away]->Get());
  away[std::exchange(record.away, -1)].reset();
}

void Tape::Prefetch() {
  const std::lock_guard lock(mutex);
  for (const std::unique_ptr<HostCopy>& copy : away) {
    if (copy != nullptr) copy->Prefetch();
  }
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

void Tape::MovePlanned() {
  for (size_t s = 0; s < storages.size(); ++s) {
    const StorageRecord& record = storages[s];
    if (!record.kept || record.kind != StorageKind::kIntermediate) continue;
    if (record.move) MoveAway(static_cast<int32_t>(s));
    if (record.kept) saved_bytes += record.bytes;
  }
}

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
  return static_cast<int64_t>(storages.capacity() * sizeof(StorageRecord) + ops.capacity() * sizeof(OpRecord) +
                              arguments.capacity() * sizeof(Argument) + values.capacity() * sizeof(ValueRef) +
                              geometry.capacity() * sizeof(int64_t) + constants.capacity() * sizeof(c10::IValue) +
                              consumed.capacity() * sizeof(int32_t) + writes.capacity() * sizeof(int32_t) + 2 * ops.size());
}

}  // namespace tidetape::agent
