// Records one execution of a block: ops as the dispatcher runs them, and values as autograd packs them.
#ifndef TIDETAPE_AGENT_TAPE_RECORDER_H_
#define TIDETAPE_AGENT_TAPE_RECORDER_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "agent/tape/audit.h"
#include "agent/tape/block.h"
#include "agent/tape/flat_index.h"
#include "agent/tape/tape.h"

namespace tidetape::agent {

// One a thread. Values are found by their storage's address; weak references keep an address from being used again meanwhile.
class Recorder {
 public:
  // The recorder of this thread while it records, or null.
  static Recorder* Current();
  static Recorder& OfThisThread();

  // Starts a tape. `actions` may be null (nothing is saved) and must outlive End().
  void Begin(TapePtr tape, const BlockActions* actions, const std::vector<at::Tensor>& inputs);

  // Ends it, also after an exception in the block's forward. Returns the tape, prepared for backward; nothing was moved yet.
  TapePtr End();

  // Runs `op` on `stack` with the keys `below` the interception, and notes what it did.
  void Record(const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack* stack);

  // What autograd is about to save. `value.storage` is kHeld where the tensor has to be held as it is.
  ValueRef Pack(const at::Tensor& tensor);
  // Index into Tape::outside_storages, -1 where a block's op made the storage of a plain tensor or nothing is known of it.
  int32_t OutsideOf(const at::Tensor& tensor);

  const TapePtr& tape() const { return tape_; }
  // The storage that was recorded under this number, if it is still alive.
  StorageRef Original(int32_t storage) const { return notes_[storage].original.lock(); }

  // The recordings that begin from now on are audited at their end; see audit.h.
  void set_auditing(bool auditing) { auditing_ = auditing; }
  bool auditing() const { return auditing_; }

  // Whether autograd packs into the recording; off only to measure recording alone.
  void set_packing(bool packing) { packing_ = packing; }
  bool packing() const { return packing_; }

 private:
  struct Rollback;
  // What only the recording needs to know of a storage.
  struct StorageNotes {
    c10::weak_intrusive_ptr<c10::StorageImpl> original;
    uint64_t content = 0;        // site of the content as last written
    int32_t view = -1;           // that it was last seen through
    bool uninitialized = false;  // allocated, and not yet written by a recorded op
  };

  int32_t Find(const c10::StorageImpl* storage);
  void SetIndex(const c10::StorageImpl* storage, int32_t index);
  int32_t AddOutside(const at::Tensor& tensor, uint64_t hint);
  int32_t AddStorage(const at::Tensor& tensor, StorageRecord record, bool uninitialized = false);
  ValueRef Refer(const at::Tensor& tensor, int32_t storage);
  // Bits of arguments that a replay does without, so that it does not update running statistics a second time.
  uint64_t StatisticsToForget(const OpFacts& facts, const torch::jit::Stack& stack, size_t base);
  Argument EncodeArgument(OpRecord& op, const c10::IValue& given, uint32_t number);
  void EncodeArguments(OpRecord& op, const torch::jit::Stack& stack, size_t base, uint64_t forgotten);
  ValueRef EncodeTensor(OpRecord& op, const at::Tensor& tensor, uint32_t argument);
  void NoteRandomState(OpRecord& op, const torch::jit::Stack& stack, size_t base);
  void BeforeWrites(OpRecord& op, uint64_t written_arguments);
  void AfterWrites(OpRecord& op);
  bool EncodeOutputs(OpRecord& op, const torch::jit::Stack& stack);
  void EncodeOutput(OpRecord& op, const at::Tensor& tensor, uint32_t output);
  bool WasRead(int32_t storage) const;
  void SnapshotIfRead(int32_t storage);
  void SplitOff(int32_t storage, StorageRef original, StorageRef copy);
  void AfterHiddenWrite(c10::StorageImpl* written, StorageRef before);
  void KeepOriginal(int32_t storage);

  TapePtr tape_;
  const BlockActions* actions_ = nullptr;
  FlatIndex storage_of_;  // StorageImpl address -> Tape::storages, plus one
  FlatIndex occurrences_;
  FlatIndex views_;
  std::vector<StorageNotes> notes_;  // one an entry of Tape::storages
  uint64_t reads_hash_ = 0;
  bool auditing_ = false;
  bool packing_ = true;
  AuditedValues audited_;
};

// The tape can describe the tensor by storage and view, and make it again: strided, dense, no subclass, no lazy bits.
bool IsPlain(const c10::TensorImpl& tensor);

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_TAPE_RECORDER_H_
