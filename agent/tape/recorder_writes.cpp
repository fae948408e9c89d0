// What the recorder does about ops that write: contents that replays need are kept before they go.
#include <algorithm>
#include <utility>
#include <vector>

#include "agent/tape/copy_storage.h"
#include "agent/tape/open_tapes.h"
#include "agent/tape/recorder.h"

namespace tidetape::agent {

uint64_t Recorder::StatisticsToForget(const OpFacts& facts, const torch::jit::Stack& stack, size_t base) {
  std::vector<at::Tensor> statistics;
  for (uint32_t i = 0; i < facts.num_arguments; ++i) {
    if (!(facts.statistics_arguments >> i & 1) || !stack[base + i].isTensor() || !stack[base + i].toTensor().defined()) continue;
    const at::Tensor& tensor = statistics.emplace_back(stack[base + i].toTensor());
    if (!IsPlain(*tensor.unsafeGetTensorImpl())) return 0;
    const int32_t storage = Find(tensor.storage().unsafeGetStorageImpl());
    if (storage != kNoStorage && tape_->storages[storage].kind == StorageKind::kIntermediate) return 0;
  }
  for (const at::Tensor& tensor : statistics) {
    c10::StorageImpl* original = tensor.storage().unsafeGetStorageImpl();
    if (const int32_t storage = Find(original); storage != kNoStorage) SnapshotIfRead(storage);
    open_tapes::BeforeWrite(*original);
  }
  return facts.statistics_arguments;
}

// An op that is on the tape already read the storage in its present version.
bool Recorder::WasRead(int32_t storage) const {
  const Tape& tape = *tape_;
  const uint16_t version = tape.storages[storage].version;
  return std::any_of(tape.ops.begin(), tape.ops.end(), [&](const OpRecord& op) {
    return std::any_of(tape.values.begin() + op.first_value, tape.values.begin() + op.first_output,
                       [&](const ValueRef& value) { return value.storage == storage && value.version == version; });
  });
}

// The op is about to overwrite a content that ops before it read and that no replay can make again: those ops get a copy.
void Recorder::SnapshotIfRead(int32_t storage) {
  if (!WasRead(storage)) return;
  KeepOriginal(storage);
  if (const StorageRef original = tape_->storages[storage].kept) SplitOff(storage, original, CopyStorage(*original));
}

// The record that was read from goes on with the copy; a new record goes on with the storage itself, and with what autograd packed
// of it: that is read as it is when backward comes, or refused where its version tells of the write.
void Recorder::SplitOff(int32_t storage, StorageRef original, StorageRef copy) {
  Tape& tape = *tape_;
  const uint32_t before = tape.ops.empty() ? 0 : tape.ops.back().end_output;
  StorageRecord next = tape.storages[storage];
  next.kept.reset();
  StorageNotes notes = notes_[storage];
  next.site = notes.content = Mix(notes.content, 0x5eed);
  tape.DropKept(storage);
  tape.Keep(storage, std::move(copy));
  StorageRecord& read = tape.storages[storage];
  read.copied = true;
  read.handles = 0;
  read.consumed = false;
  const auto index = static_cast<int32_t>(tape.storages.size());
  if (next.handles > 0) tape.continued.emplace_back(storage, index);
  std::replace(tape.consumed.begin(), tape.consumed.end(), storage, index);
  tape.storages.push_back(std::move(next));
  notes.original = c10::weak_intrusive_ptr<c10::StorageImpl>(original);
  notes_.push_back(std::move(notes));
  SetIndex(original.get(), index);
  if (tape.storages[index].kind != StorageKind::kIntermediate) tape.storages[index].kept = std::move(original);
  for (uint32_t v = before; v < tape.values.size(); ++v) {
    if (tape.values[v].storage == storage) tape.values[v].storage = index;
  }
}

// The op that just ran wrote what its schema does not say.
void Recorder::AfterHiddenWrite(c10::StorageImpl* written, StorageRef before) {
  int32_t storage = Find(written);
  if (storage == kNoStorage) return;
  if (WasRead(storage)) {
    SplitOff(storage, StorageRef::reclaim_copy(written), std::move(before));
    storage = Find(written);
  }
  StorageRecord& record = tape_->storages[storage];
  notes_[storage].content = Mix(notes_[storage].content, 0x4d1d);
  if (record.kind != StorageKind::kIntermediate) return;
  ++record.version;
  record.last_writer = static_cast<int32_t>(tape_->ops.size());
  record.must_save = true;
  KeepOriginal(storage);
}

void Recorder::BeforeWrites(OpRecord& op, uint64_t written_arguments) {
  Tape& tape = *tape_;
  op.first_write = static_cast<uint32_t>(tape.writes.size());
  for (uint32_t i = 0; i < op.facts->num_arguments && i < 64; ++i) {
    if (!(written_arguments >> i & 1)) continue;
    const Argument argument = tape.arguments[op.first_argument + i];
    if (argument.kind == Argument::Kind::kConstant || argument.kind == Argument::Kind::kNumber) continue;
    for (const ValueRef& value : tape.ValuesOf(argument)) {
      const int32_t storage = value.storage;
      if (storage < 0) continue;
      const StorageRecord& record = tape.storages[storage];
      if (record.kind != StorageKind::kIntermediate || record.must_save) {
        op.replayable = false;
        SnapshotIfRead(storage);
        if (StorageRef original = notes_[storage].original.lock()) open_tapes::BeforeWrite(*original);
      }
      tape.writes.push_back(value.storage);
    }
  }
  op.end_write = static_cast<uint32_t>(tape.writes.size());
}

void Recorder::AfterWrites(OpRecord& op) {
  Tape& tape = *tape_;
  const auto index = static_cast<int32_t>(tape.ops.size());
  for (uint32_t w = op.first_write; w < op.end_write; ++w) {
    StorageRecord& record = tape.storages[tape.writes[w]];
    if (record.last_writer == index) continue;  // given twice
    if (record.kind == StorageKind::kIntermediate) {
      ++record.version;
      record.last_writer = index;
      if (!op.replayable) {
        record.must_save = true;
        KeepOriginal(tape.writes[w]);
      }
    }
    StorageNotes& notes = notes_[tape.writes[w]];
    notes.uninitialized = false;
    // Neither how often it was written nor from what: a loop that adds up parts may have more or fewer of them in the next step.
    notes.content = Mix(record.site, op.facts->name_hash);
  }
}

}  // namespace tidetape::agent
