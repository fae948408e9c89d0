#include "agent/tape/replayer.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "agent/measure/meter.h"
#include "agent/measure/step_profile.h"
#include "agent/tape/block.h"

namespace tidetape::agent {
namespace {

// Below autograd, autocast, modes and the interception, as kernels ran while recording.
class ReplayState {
 public:
  ReplayState()
      : excluded_(c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
                  c10::DispatchKeySet({c10::DispatchKey::Fake, c10::DispatchKey::DeferredInit, c10::DispatchKey::Python,
                                       c10::DispatchKey::PythonTLSSnapshot, c10::DispatchKey::PreDispatch,
                                       c10::DispatchKey::FuncTorchDynamicLayerBackMode,
                                       c10::DispatchKey::FuncTorchDynamicLayerFrontMode})) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard excluded_;
};

class Replayer {
 public:
  explicit Replayer(Tape& tape) : tape_(tape) {}

  void RunAll(const std::function<void(int32_t op)>& after_op) {
    for (size_t i = 0; i < tape_.ops.size(); ++i) {
      if (!tape_.needed[i] || tape_.done[i]) continue;
      RunOp(static_cast<int32_t>(i));
      after_op(static_cast<int32_t>(i));
    }
  }

  void Run(int32_t storage) {
    Want(storage);
    const bool measure = tape_.measured_costs;
    if (measure && tape_.op_seconds.empty()) {
      tape_.op_seconds.assign(tape_.ops.size(), -1);
      tape_.op_workspace.assign(tape_.ops.size(), 0);
    }
    last_ = std::chrono::steady_clock::now();
    const auto start = last_;
    for (size_t i = first_; i < want_.size(); ++i) {
      if (want_[i]) RunOnce(static_cast<int32_t>(i), measure);
    }
    // What these ops read would be held for them otherwise.
    for (size_t i = 0; tape_.pending_ops > 0 && i < tape_.ops.size(); ++i) {
      if (tape_.needed[i] && !tape_.done[i] && Shrinks(static_cast<int32_t>(i))) RunOnce(static_cast<int32_t>(i), measure);
    }
    if (!measure) last_ = std::chrono::steady_clock::now();
    tape_.replay_seconds += std::chrono::duration<double>(last_ - start).count();
  }

 private:
  void RunOnce(int32_t index, bool measure) {
    if (!measure) {
      RunOp(index);
      return;
    }
    StepProfile::Get().TakeReplayPeak();
    const int64_t before = meter::LiveBytes();
    RunOp(index);
    const int64_t made = meter::LiveBytes() - before;
    const int64_t workspace = StepProfile::Get().TakeReplayPeak() - before - std::max<int64_t>(made, 0);
    tape_.op_workspace[index] = std::max(tape_.op_workspace[index], workspace);
    Release(index);
    const auto now = std::chrono::steady_clock::now();
    tape_.op_seconds[index] = std::chrono::duration<float>(now - last_).count();
    last_ = now;
  }

  // All that the op reads is there, and it frees at least what it makes. The planner's simulation goes by the same rule.
  bool Shrinks(int32_t index) const {
    const OpRecord& op = tape_.ops[index];
    int64_t grows = 0;
    for (uint32_t v = op.first_value; v < op.first_output; ++v) {
      const ValueRef& value = tape_.values[v];
      if (value.storage < 0) continue;
      const StorageRecord& record = tape_.storages[value.storage];
      if (record.kind != StorageKind::kIntermediate) continue;
      if (value.writer >= 0 && !tape_.done[value.writer] && !tape_.Has(value)) return false;
      int32_t readings = 0;
      bool first = true;
      for (uint32_t w = op.first_value; w < op.first_output; ++w) {
        if (tape_.values[w].storage != value.storage) continue;
        ++readings;
        first &= w >= v;
      }
      if (first && record.handles == 0 && record.reads_left == readings) grows -= record.bytes;
    }
    for (uint32_t w = op.first_write; w < op.end_write; ++w) {
      if (EarlierReaderWaits(index, tape_.writes[w])) return false;
    }
    for (uint32_t v = op.first_output; v < op.end_output; ++v) {
      if (tape_.values[v].storage < 0) continue;
      const StorageRecord& record = tape_.storages[tape_.values[v].storage];
      const bool stays = record.handles > 0 || record.reads_left > 0;
      if (record.creator == index && !record.kept && stays) grows += record.bytes;
    }
    return grows <= 0;
  }

  // The op has still to run, and reads a content of the storage that only replays have.
  bool WaitsToRead(int32_t index, int32_t storage) const {
    if (!tape_.needed[index] || tape_.done[index]) return false;
    const OpRecord& op = tape_.ops[index];
    for (uint32_t v = op.first_value; v < op.first_output; ++v) {
      if (tape_.values[v].storage == storage && !tape_.Has(tape_.values[v])) return true;
    }
    return false;
  }

  bool EarlierReaderWaits(int32_t writer, int32_t storage) const {
    for (int32_t i = 0; i < writer; ++i) {
      if (WaitsToRead(i, storage)) return true;
    }
    return false;
  }

  // Marks the ops that have not run and that `storage` depends on: producers of what they read, and readers of what they overwrite.
  void Want(int32_t storage) {
    const int32_t last = tape_.storages[storage].last_writer;
    want_.assign(last + 1, 0);
    want_[last] = 1;
    for (int32_t i = last; i >= 0; --i) {
      if (!want_[i]) continue;
      if (tape_.done[i]) {
        want_[i] = 0;
        continue;
      }
      first_ = i;
      const OpRecord& op = tape_.ops[i];
      for (uint32_t v = op.first_value; v < op.first_output; ++v) {
        const ValueRef& value = tape_.values[v];
        if (value.storage >= 0 && value.writer >= 0 && !tape_.Has(value)) want_[value.writer] = 1;
      }
      for (uint32_t w = op.first_write; w < op.end_write; ++w) WantEarlierReaders(i, tape_.writes[w]);
    }
  }

  void WantEarlierReaders(int32_t writer, int32_t storage) {
    for (int32_t i = 0; i < writer; ++i) {
      if (!want_[i] && WaitsToRead(i, storage)) want_[i] = 1;
    }
  }

  const StorageRef& Find(const OpRecord& op, const ValueRef& value) {
    const StorageRecord& record = tape_.storages[value.storage];
    if (record.kind != StorageKind::kIntermediate || tape_.Has(value)) {
      if (record.away >= 0) tape_.BringBack(value.storage);
      TORCH_CHECK(record.kept, "tidetape: block '", tape_.block->name(), "': the tape let go of an input of ", op.facts->name,
                  " that a replay needs");
      TORCH_CHECK(
          record.copied || record.outside < 0 || tape_.outside_storages[record.outside].IsAsSeen(),
          "one of the variables needed for gradient computation has been modified by an inplace operation: tidetape replays ",
          op.facts->name, " of block '", tape_.block->name(), "' from it. Change it after backward, or keep the block's ",
          "values with memory_limit=\"max\"");
      TORCH_CHECK(static_cast<int64_t>(record.kept->nbytes()) >= record.bytes, "tidetape: block '", tape_.block->name(),
                  "': backward needs to replay ", op.facts->name,
                  ", but an input or parameter of it is not there (resharded or resized). ",
                  "Make the block a unit of its own for fully_shard, or leave it out of tidetape.attach(blocks=...)");
      return record.kept;
    }
    TORCH_INTERNAL_ASSERT(record.replayed && record.replayed_version == value.version, "tidetape: block '", tape_.block->name(),
                          "': replay of ", op.facts->name, " is out of order");
    return record.replayed;
  }

  at::Tensor TensorOf(const OpRecord& op, const ValueRef& value) {
    if (value.storage == kNoStorage) return {};
    return tape_.Build(value, Find(op, value));
  }

  void PushArguments(const OpRecord& op) {
    stack_.clear();
    for (uint32_t i = 0; i < op.facts->num_arguments; ++i) {
      const Argument& argument = tape_.arguments[op.first_argument + i];
      switch (argument.kind) {
        case Argument::Kind::kConstant:
          stack_.push_back(tape_.constants[argument.index]);
          break;
        case Argument::Kind::kNumber: {
          at::Tensor number = c10::scalar_to_tensor(tape_.constants[argument.index].toScalar());
          number.unsafeGetTensorImpl()->set_wrapped_number(true);
          stack_.emplace_back(std::move(number));
          break;
        }
        case Argument::Kind::kTensor:
          stack_.emplace_back(TensorOf(op, tape_.values[argument.index]));
          break;
        case Argument::Kind::kTensorList: {
          c10::List<at::Tensor> list;
          for (const ValueRef& value : tape_.ValuesOf(argument)) list.push_back(TensorOf(op, value));
          stack_.emplace_back(std::move(list));
          break;
        }
        case Argument::Kind::kOptionalList: {
          c10::List<std::optional<at::Tensor>> list;
          for (const ValueRef& value : tape_.ValuesOf(argument)) {
            at::Tensor tensor = TensorOf(op, value);
            list.push_back(tensor.defined() ? std::optional<at::Tensor>(std::move(tensor)) : std::nullopt);
          }
          stack_.emplace_back(std::move(list));
          break;
        }
      }
    }
  }

  void TakeOutput(const OpRecord& op, uint32_t output, const at::Tensor& tensor) {
    const ValueRef& value = tape_.values[output];
    if (value.storage < 0) return;
    StorageRecord& record = tape_.storages[value.storage];
    if (record.kind != StorageKind::kIntermediate || record.creator != Index(op)) return;
    if (record.version == 1 && (record.kept || record.away >= 0)) return;  // made beside what is missing
    TORCH_CHECK(tensor.defined() && static_cast<int64_t>(tensor.storage().nbytes()) == record.bytes, "tidetape: block '",
                tape_.block->name(), "': the replay of ", op.facts->name, " made another size than its recording");
    tape_.SetReplayed(value.storage, StorageRef::reclaim_copy(tensor.storage().unsafeGetStorageImpl()));
    record.replayed_version = 1;
  }

  int32_t Index(const OpRecord& op) const { return static_cast<int32_t>(&op - tape_.ops.data()); }

  void RunOp(int32_t index) {
    const OpRecord& op = tape_.ops[index];
    TORCH_INTERNAL_ASSERT(op.replayable, "tidetape: block '", tape_.block->name(), "': ", op.facts->name, " must not run twice");
    PushArguments(op);
    {
      std::optional<RngStates::Scope> drawn;
      const c10::AutoGradMode grad_mode(op.grad_mode);  // some kernels ask for it
      if (op.rng >= 0) drawn.emplace(tape_.rng, op.rng);
      std::optional<AutocastStates::Scope> casting;
      if (op.autocast != 0) casting.emplace(tape_.autocast, op.autocast);
      op.facts->handle.redispatchBoxed(op.keys, &stack_);
    }
    uint32_t output = op.first_output;
    for (const c10::IValue& result : stack_) {
      if (result.isTensor()) {
        TakeOutput(op, output++, result.toTensor());
      } else if (result.isTensorList()) {
        for (const c10::IValue& item : result.toListRef()) TakeOutput(op, output++, item.toTensor());
      }
    }
    for (uint32_t w = op.first_write; w < op.end_write; ++w) {
      StorageRecord& record = tape_.storages[tape_.writes[w]];
      if (record.replayed) record.replayed_version = VersionAfter(op, tape_.writes[w]);
    }
    stack_.clear();
    tape_.done[index] = 1;
    --tape_.pending_ops;
    ++tape_.replayed_ops;
    if (!tape_.measured_costs) Release(index);
  }

  uint16_t VersionAfter(const OpRecord& op, int32_t storage) const {
    for (uint32_t v = op.first_value; v < op.first_output; ++v) {
      if (tape_.values[v].storage == storage) return tape_.values[v].version + 1;
    }
    return 0;
  }

  // Lets go of what nobody will read any more.
  void Release(int32_t index) {
    const OpRecord& op = tape_.ops[index];
    for (uint32_t v = op.first_value; v < op.first_output; ++v) {
      const int32_t storage = tape_.values[v].storage;
      if (storage < 0) continue;
      --tape_.storages[storage].reads_left;
      Drop(storage);
    }
    for (uint32_t v = op.first_output; v < op.end_output; ++v) {
      if (tape_.values[v].storage >= 0) Drop(tape_.values[v].storage);
    }
  }

  void Drop(int32_t storage) {
    const StorageRecord& record = tape_.storages[storage];
    if (record.kind != StorageKind::kIntermediate || record.reads_left > 0 || record.handles > 0) return;
    tape_.DropReplayed(storage);
    tape_.DropKept(storage);
  }

  Tape& tape_;
  std::vector<uint8_t> want_;
  int32_t first_ = 0;
  torch::jit::Stack stack_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace

StorageRef MaterialiseInForward(Tape& tape, int32_t storage, StorageRef original) {
  if (original) return original;
  // Everything counts as needed, so that nothing is let go: what the rest of the forward and backward will read is not known yet.
  tape.needed.assign(tape.ops.size(), 1);
  tape.done.assign(tape.ops.size(), 0);
  const int32_t kManyReads = 1 << 30;
  for (StorageRecord& record : tape.storages) record.reads_left = kManyReads;
  const bool measured = std::exchange(tape.measured_costs, false);
  StorageRef made;
  const auto restore = [&] {
    tape.ForgetReplay();
    tape.measured_costs = measured;
  };
  try {
    const ReplayState state;
    Replayer(tape).Run(storage);
    made = tape.storages[storage].replayed;
  } catch (...) {
    restore();
    throw;
  }
  restore();
  return made;
}

void ReplayAll(Tape& tape, const std::function<void(int32_t op)>& after_op) {
  const ReplayState state;
  Replayer(tape).RunAll(after_op);
}

StorageRef Materialise(Tape& tape, int32_t storage) {
  StorageRecord& record = tape.storages[storage];
  if (StorageRef overwritten = tape.Overwritten(storage)) return overwritten;
  if (record.away >= 0) tape.BringBack(storage);
  if (record.kept) return record.kept;
  if (!record.replayed || record.replayed_version != record.version) {
    const ReplayState state;
    StepProfile::Get().ReplayBegins();
    Replayer(tape).Run(storage);
    StepProfile::Get().ReplayEnds(tape.position);
  }
  TORCH_INTERNAL_ASSERT(record.replayed, "tidetape: block '", tape.block->name(), "': nothing made the value that backward reads");
  return record.replayed;
}

}  // namespace tidetape::agent
