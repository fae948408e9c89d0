#include "agent/tape/recorder.h"

#include <ATen/Context.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "agent/measure/step_profile.h"
#include "agent/tape/op_probe.h"
#include "agent/tape/open_tapes.h"

namespace tidetape::agent {
namespace {

thread_local Recorder* current = nullptr;

// Of the ops that have running statistics: whether they train.
constexpr size_t kTrainingArgument = 5;

// Everything that a plain tensor may have; one key more, and only torch knows what it means.
const c10::DispatchKeySet& PlainKeys() {
  static const c10::DispatchKeySet keys = c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
                                          c10::DispatchKeySet(c10::DispatchKey::CPU) | c10::DispatchKeySet(c10::DispatchKey::CUDA) |
                                          c10::DispatchKeySet(c10::DispatchKey::AutogradCPU) |
                                          c10::DispatchKeySet(c10::DispatchKey::AutogradCUDA);
  return keys;
}

// The number that torch wrapped into a CPU tensor.
c10::Scalar NumberOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble:
      return *tensor.const_data_ptr<double>();
    case at::kLong:
      return *tensor.const_data_ptr<int64_t>();
    case at::kBool:
      return *tensor.const_data_ptr<bool>();
    default:
      return tensor.item();
  }
}

}  // namespace

bool IsPlain(const c10::TensorImpl& tensor) {
  const c10::DispatchKeySet keys = tensor.key_set();
  // Raw bits: operator- would leave the backend's.
  return (keys.raw_repr() & ~PlainKeys().raw_repr()) == 0 && keys.has(c10::DispatchKey::ADInplaceOrView) && tensor.has_storage() &&
         !tensor.is_wrapped_number() && !tensor.has_symbolic_sizes_strides();
}

// Where the tape stood before an op, so that an op that made nothing leaves no trace.
struct Recorder::Rollback {
  explicit Rollback(Tape& tape)
      : arguments(tape.arguments.size()),
        values(tape.values.size()),
        writes(tape.writes.size()),
        lists(tape.lists.size()),
        views(tape.views.size()),
        constants(tape.constants.size()) {}
  void Undo(Tape& tape) const {
    tape.arguments.resize(arguments);
    tape.values.resize(values);
    tape.writes.resize(writes);
    tape.lists.resize(lists);
    tape.views.Truncate(views);
    tape.constants.resize(constants);
  }
  size_t arguments, values, writes, lists, views, constants;
};

Recorder* Recorder::Current() { return current; }

Recorder& Recorder::OfThisThread() {
  thread_local Recorder recorder;
  return recorder;
}

void Recorder::Begin(TapePtr tape, const BlockActions* actions, const std::vector<at::Tensor>& inputs) {
  tape_ = std::move(tape);
  actions_ = actions;
  tape_->keeps_all = actions != nullptr && actions->save_by_default;
  const Block::Sizes& sizes = tape_->block->sizes;
  tape_->storages.reserve(sizes.storages);
  tape_->ops.reserve(sizes.ops);
  tape_->arguments.reserve(sizes.arguments);
  tape_->values.reserve(sizes.values);
  tape_->views.Reserve(sizes.views);
  tape_->constants.reserve(sizes.constants);
  tape_->consumed.reserve(sizes.consumed);
  storage_of_.Clear();
  occurrences_.Clear();
  views_.Clear();
  notes_.clear();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& input = inputs[i];
    if (!input.defined() || !IsPlain(*input.unsafeGetTensorImpl())) continue;
    if (Find(input.storage().unsafeGetStorageImpl()) != kNoStorage) continue;
    StorageRecord record;
    record.kind = StorageKind::kBlockInput;
    // Backward reads in another order where an input needs no gradient: a block whose input does is not the same.
    record.site = Mix(HashText(input.requires_grad() ? "input" : "input without gradient"), i);
    if (const Block::Named named = tape_->block->Find(input.storage().unsafeGetStorageImpl(), false); named.site != 0) {
      record.kind = named.buffer ? StorageKind::kBlockInput : StorageKind::kParameter;
      record.site = named.site;
    }
    AddStorage(input, record);
  }
  current = this;
}

TapePtr Recorder::End() {
  current = nullptr;
  Tape& tape = *tape_;
  for (const int32_t storage : tape.consumed) {
    if (notes_[storage].original.use_count() > 0) tape.exposed.emplace_back(storage, std::move(notes_[storage].original));
  }
  notes_.clear();
  uint64_t hash = 0;
  for (const StorageRecord& record : tape.storages) {
    if (record.kind == StorageKind::kIntermediate) hash += Mix(record.site, record.consumed ? 2 : 1);
  }
  tape.structure_hash = Mix(hash, tape.ops.size());
  tape.releases_inputs = tape.keeps_all;
  tape.Prepare();
  for (OutsideStorage& outside : tape.outside_storages) outside.seen = outside.version.current_version();
  if (auditing_) audited_.Audit(tape);
  if (tape.pending_ops > 0 || tape.PlansMoves()) open_tapes::Add(tape_);
  tape.recording = false;
  tape.block->sizes = {tape.storages.size(), tape.ops.size(),       tape.arguments.size(), tape.values.size(),
                       tape.views.size(),    tape.constants.size(), tape.consumed.size()};
  actions_ = nullptr;
  return std::move(tape_);
}

int32_t Recorder::Find(const c10::StorageImpl* storage) {
  const int32_t* found = storage_of_.Find(reinterpret_cast<uint64_t>(storage));
  return found == nullptr ? kNoStorage : *found - 1;
}

void Recorder::SetIndex(const c10::StorageImpl* storage, int32_t index) {
  storage_of_[reinterpret_cast<uint64_t>(storage)] = index + 1;
}

int32_t Recorder::AddStorage(const at::Tensor& tensor, StorageRecord record, bool uninitialized) {
  const auto index = static_cast<int32_t>(tape_->storages.size());
  const c10::Storage& storage = tensor.storage();
  record.bytes = static_cast<int64_t>(storage.nbytes());
  if (record.kind != StorageKind::kIntermediate) {
    record.kept = StorageRef::reclaim_copy(storage.unsafeGetStorageImpl());
    record.move = record.kind == StorageKind::kBlockInput && actions_ != nullptr && actions_->move.count(record.site) > 0;
    if (!tensor.is_inference()) {
      const c10::VariableVersion& version = tensor.unsafeGetTensorImpl()->version_counter();
      record.outside = static_cast<int32_t>(tape_->outside_storages.size());
      tape_->outside_storages.push_back({version, version.current_version()});
    }
  }
  notes_.push_back({storage.getWeakStorageImpl(), record.site, -1, uninitialized});
  tape_->storages.push_back(std::move(record));
  SetIndex(storage.unsafeGetStorageImpl(), index);
  return index;
}

int32_t Recorder::AddOutside(const at::Tensor& tensor, uint64_t hint) {
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  StorageRecord record;
  const Block::Named named = tape_->block->Find(storage, tensor.is_leaf() && tensor.requires_grad());
  record.kind = named.site != 0 && !named.buffer ? StorageKind::kParameter : StorageKind::kBlockInput;
  record.site = named.site;
  record.inner_unit = named.inner_unit;
  if (record.site == 0) {
    const uint64_t base = Mix(HashText("outside"), hint);
    record.site = Mix(base, occurrences_[base]++);
  }
  return AddStorage(tensor, record);
}

ValueRef Recorder::Refer(const at::Tensor& tensor, int32_t storage) {
  const StorageRecord& record = tape_->storages[storage];
  int32_t& view = notes_[storage].view;
  view = static_cast<int32_t>(tape_->views.Note(*tensor.unsafeGetTensorImpl(), view, views_));
  return {storage, record.last_writer, static_cast<uint32_t>(view), record.version};
}

void Recorder::KeepOriginal(int32_t storage) {
  if (tape_->storages[storage].kept) return;
  if (StorageRef original = notes_[storage].original.lock()) tape_->Keep(storage, std::move(original));
}

ValueRef Recorder::EncodeTensor(OpRecord& op, const at::Tensor& tensor, uint32_t argument) {
  if (!tensor.defined()) return {};
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (!IsPlain(impl)) {
    op.replayable = false;
    ValueRef held;
    held.storage = kHeld;
    return held;
  }
  int32_t storage = Find(tensor.storage().unsafeGetStorageImpl());
  if (storage == kNoStorage) storage = AddOutside(tensor, Mix(op.facts->name_hash, argument));
  StorageRecord& record = tape_->storages[storage];
  const bool written = argument < 64 && (op.facts->written_arguments >> argument & 1);
  StorageNotes& notes = notes_[storage];
  if (notes.uninitialized && !written) {
    // Somebody whom the dispatcher cannot see filled it.
    notes.uninitialized = false;
    record.must_save = true;
  }
  if (record.must_save) KeepOriginal(storage);
  if (record.inner_unit) op.replayable = false;
  reads_hash_ = Mix(reads_hash_, notes.content);
  return Refer(tensor, storage);
}

Argument Recorder::EncodeArgument(OpRecord& op, const c10::IValue& given, uint32_t number) {
  Tape& tape = *tape_;
  if (given.isTensor()) {
    const at::Tensor& tensor = given.toTensor();
    if (tensor.defined() && tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      tape.constants.emplace_back(NumberOf(tensor));
      return {Argument::Kind::kNumber, tape.constants.size() - 1};
    }
    tape.values.push_back(EncodeTensor(op, tensor, number));
    return {Argument::Kind::kTensor, tape.values.size() - 1};
  }
  if (given.isList() && !given.isIntList() && !given.isDoubleList() && !given.isBoolList()) {
    const auto items = given.toListRef();
    if (std::any_of(items.begin(), items.end(), [](const c10::IValue& item) { return item.isTensor(); })) {
      tape.lists.push_back({static_cast<uint32_t>(tape.values.size()), static_cast<uint32_t>(items.size())});
      for (const c10::IValue& item : items) {
        tape.values.push_back(EncodeTensor(op, item.isTensor() ? item.toTensor() : at::Tensor(), number));
      }
      return {given.isTensorList() ? Argument::Kind::kTensorList : Argument::Kind::kOptionalList, tape.lists.size() - 1};
    }
  }
  if (given.isTuple() || given.isGenericDict()) op.replayable = false;  // may hide tensors
  tape.constants.push_back(given);
  return {Argument::Kind::kConstant, tape.constants.size() - 1};
}

void Recorder::EncodeArguments(OpRecord& op, const torch::jit::Stack& stack, size_t base, uint64_t forgotten) {
  Tape& tape = *tape_;
  op.first_argument = static_cast<uint32_t>(tape.arguments.size());
  op.first_value = static_cast<uint32_t>(tape.values.size());
  reads_hash_ = op.facts->name_hash;
  for (uint32_t i = 0; i < op.facts->num_arguments; ++i) {
    if (i < 64 && (forgotten >> i & 1)) {
      tape.arguments.emplace_back(Argument::Kind::kTensor, tape.values.size());
      tape.values.emplace_back();
    } else {
      tape.arguments.push_back(EncodeArgument(op, stack[base + i], i));
    }
  }
  op.first_output = static_cast<uint32_t>(tape.values.size());
}

void Recorder::NoteRandomState(OpRecord& op, const torch::jit::Stack& stack, size_t base) {
  c10::Device device(c10::DeviceType::CPU);
  for (uint32_t v = op.first_value; v < op.first_output; ++v) {
    const ValueRef& value = tape_->values[v];
    if (value.storage < 0) continue;
    device = tape_->storages[value.storage].kept ? tape_->storages[value.storage].kept->device() : device;
  }
  for (uint32_t i = 0; i < op.facts->num_arguments; ++i) {
    const c10::IValue& given = stack[base + i];
    if (given.isGenerator() && given.toGenerator().defined()) {
      op.rng = tape_->rng.Note(given.toGenerator());
      return;
    }
    if (given.isTensor() && given.toTensor().defined()) device = given.toTensor().device();
    if (given.isDevice()) device = given.toDevice();
  }
  op.rng = tape_->rng.Note(DefaultGenerator(device));
}

void Recorder::EncodeOutput(OpRecord& op, const at::Tensor& tensor, uint32_t output) {
  Tape& tape = *tape_;
  if (!tensor.defined() || !IsPlain(*tensor.unsafeGetTensorImpl())) {
    tape.values.emplace_back();
    return;
  }
  int32_t storage = Find(tensor.storage().unsafeGetStorageImpl());
  if (storage == kNoStorage) {
    StorageRecord record;
    const uint64_t base = Mix(reads_hash_, output);
    record.site = Mix(base, occurrences_[base]++);
    record.creator = record.last_writer = static_cast<int32_t>(tape.ops.size());
    record.version = 1;
    record.must_save = !op.replayable || (!tape.block->demoted.empty() && tape.block->demoted.count(record.site) > 0);
    record.move = actions_ != nullptr && actions_->move.count(record.site) > 0;
    const bool keep = record.move || (actions_ != nullptr && actions_->save.count(record.site) > 0);
    storage = AddStorage(tensor, std::move(record), op.facts->uninitialized);
    if (keep) KeepOriginal(storage);
  }
  tape.values.push_back(Refer(tensor, storage));
}

bool Recorder::EncodeOutputs(OpRecord& op, const torch::jit::Stack& stack) {
  Tape& tape = *tape_;
  const size_t storages = tape.storages.size();
  const size_t base = stack.size() - op.facts->num_returns;
  uint32_t output = 0;
  for (uint32_t i = 0; i < op.facts->num_returns; ++i) {
    const c10::IValue& result = stack[base + i];
    if (result.isTensor()) {
      EncodeOutput(op, result.toTensor(), output++);
    } else if (result.isTensorList()) {
      for (const c10::IValue& item : result.toListRef()) EncodeOutput(op, item.toTensor(), output++);
    }
  }
  op.end_output = static_cast<uint32_t>(tape.values.size());
  return tape.storages.size() > storages;
}

void Recorder::Record(const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack* stack) {
  const OpFacts& facts = FactsOf(op);
  const c10::impl::ExcludeDispatchKeyGuard no_recording(c10::DispatchKey::Fake);
  if (facts.pure_view) {
    op.redispatchBoxed(below, stack);
    return;
  }
  Tape& tape = *tape_;
  const Rollback rollback(tape);
  OpRecord record;
  record.facts = &facts;
  record.keys = below;
  const uint64_t hidden_writes = facts.hidden_writes.load(std::memory_order_relaxed);
  record.grad_mode = c10::GradMode::is_enabled();
  const std::optional<uint8_t> autocast = tape.autocast.Note();
  record.autocast = autocast.value_or(0);
  record.replayable = facts.replayable && hidden_writes == 0 && autocast.has_value();
  const size_t base = stack->size() - facts.num_arguments;
  uint64_t written = facts.written_arguments | hidden_writes, forgotten = 0;
  if (facts.statistics_arguments != 0) {
    // Not training, the op only reads them.
    if ((*stack)[base + kTrainingArgument].toBool()) forgotten = StatisticsToForget(facts, *stack, base);
    if (forgotten != 0 || !(*stack)[base + kTrainingArgument].toBool()) written = 0;
  }
  EncodeArguments(record, *stack, base, forgotten);
  std::optional<OpProbe> probe;
  if (facts.probes_left.load(std::memory_order_relaxed) > 0) probe.emplace(facts, *stack, base);
  if (facts.random || probe || facts.draws.load(std::memory_order_relaxed)) NoteRandomState(record, *stack, base);
  record.first_write = record.end_write = static_cast<uint32_t>(tape.writes.size());
  if (written != 0) BeforeWrites(record, written);
  try {
    op.redispatchBoxed(below, stack);
  } catch (...) {
    rollback.Undo(tape);
    throw;
  }
  if (probe) {
    for (OpProbe::HiddenWrite& write : probe->FindHiddenWrites()) {
      record.replayable = false;
      AfterHiddenWrite(write.storage.get(), std::move(write.before));
    }
    if (!facts.random && !probe->Drew()) record.rng = -1;
  }
  if (record.end_write > record.first_write) AfterWrites(record);
  const bool made = EncodeOutputs(record, *stack);
  if (!made && record.end_write == record.first_write) {
    rollback.Undo(tape);
    return;
  }
  tape.ops.push_back(record);
  if (StepProfile::Get().profiling()) tape.forward_bytes.push_back(StepProfile::Get().TakeForwardPeak());
}

ValueRef Recorder::Pack(const at::Tensor& tensor) {
  ValueRef held;
  held.storage = kHeld;
  if (!IsPlain(*tensor.unsafeGetTensorImpl())) return held;
  Tape& tape = *tape_;
  const int32_t storage = Find(tensor.storage().unsafeGetStorageImpl());
  if (storage == kNoStorage) {
    return held;  // made where the dispatcher does not look
  }
  StorageRecord& record = tape.storages[storage];
  if (record.kind != StorageKind::kIntermediate) {
    // Autograd holds it, unless it is to leave. A leaf is the user's own.
    if (!record.move || tensor.is_leaf()) return held;
    ++record.handles;
    return Refer(tensor, storage);
  }
  if (notes_[storage].uninitialized) {
    notes_[storage].uninitialized = false;
    record.must_save = true;
  }
  if (!record.consumed) {
    record.consumed = true;
    tape.consumed.push_back(storage);
    const bool by_default = tape.keeps_all && (actions_ == nullptr || actions_->replay.count(record.site) == 0);
    if (record.must_save || by_default) KeepOriginal(storage);
  }
  ++record.handles;
  ++tape.live_handles;
  const ValueRef value = Refer(tensor, storage);
  if (auditing_ && !tape.storages[storage].kept) {
    if (StorageRef original = notes_[storage].original.lock()) audited_.Add(tape, value, std::move(original));
  }
  return value;
}

int32_t Recorder::OutsideOf(const at::Tensor& tensor) {
  const int32_t storage = Find(tensor.storage().unsafeGetStorageImpl());
  return storage == kNoStorage ? -1 : tape_->storages[storage].outside;
}

}  // namespace tidetape::agent
