// The tape of one execution of a block: what ran, on which values, and what is kept of it.
//
// A value is a storage at a version, seen through a view. Intermediates are not held by the tape unless a plan saves them or
// they cannot be replayed; parameters and inputs of the block are held by their storage, so that resharding under the tape works.
#ifndef TIDETAPE_AGENT_TAPE_TAPE_H_
#define TIDETAPE_AGENT_TAPE_TAPE_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "agent/tape/autocast_states.h"
#include "agent/tape/host_store.h"
#include "agent/tape/op_facts.h"
#include "agent/tape/rng.h"
#include "agent/tape/site.h"
#include "agent/tape/views.h"

namespace tidetape::agent {

using StorageRef = c10::intrusive_ptr<c10::StorageImpl>;

class Block;
class Tape;

// Told of the turns in the life of a tape, by the thread on which they happen.
class TapeObserver {
 public:
  virtual ~TapeObserver() = default;
  // Backward is about to read the tape for the first time, and the step profile has not heard of it: what ran backward before ends
  // here. `tape.mutex` is held, also below.
  virtual void OnBackwardAhead(Tape& tape) {}
  // The step profile has heard of it.
  virtual void OnBackwardBegin(Tape& tape) = 0;
  // The last saved-tensor handle is gone after backward began: nobody will read the tape any more. `tape.mutex` is held.
  virtual void OnBackwardEnd(Tape& tape) = 0;
  // The tape goes, and backward never read it.
  virtual void OnAbandoned(Tape& tape) = 0;
};

// Index into Tape::storages; kNoStorage: an undefined tensor; kHeld: a tensor that the tape cannot describe.
inline constexpr int32_t kNoStorage = -1;
inline constexpr int32_t kHeld = -2;
// Writer of a storage that no op of the block made.
inline constexpr int32_t kOutside = -1;

// One tensor seen by an op or by autograd.
struct ValueRef {
  int32_t storage = kNoStorage;
  int32_t writer = kOutside;  // op that made this version
  uint32_t view = 0;          // into Tape::views
  uint16_t version = 0;       // writes so far
};

// One argument of an op.
struct Argument {
  enum class Kind : uint32_t {
    kConstant,      // Tape::constants
    kNumber,        // Tape::constants: a scalar that the op was given as a 0-dim tensor of a wrapped number
    kTensor,        // Tape::values
    kTensorList,    // Tape::lists
    kOptionalList,  // the same, where entries may be undefined
  };
  Argument() : Argument(Kind::kConstant, 0) {}
  Argument(Kind kind, size_t index) : kind(kind), index(index) {}

  Kind kind : 3;
  uint32_t index : 29;
};

// Tensors of a list: `count` entries of Tape::values.
struct TensorList {
  uint32_t first = 0;
  uint32_t count = 0;
};

struct OpRecord {
  const OpFacts* facts = nullptr;
  c10::DispatchKeySet keys;     // below the interception: the same kernel runs in replay
  uint32_t first_argument = 0;  // facts->num_arguments entries of Tape::arguments
  uint32_t first_value = 0;     // all values that the op reads or writes: [first_value, first_output) of Tape::values
  uint32_t first_output = 0;    // [first_output, end_output): its tensor returns in order, undefined ones included
  uint32_t end_output = 0;
  uint32_t first_write = 0;  // [first_write, end_write) of Tape::writes: storages that were there before and that it writes
  uint32_t end_write = 0;
  int32_t rng = -1;      // RngStates number
  uint8_t autocast = 0;  // AutocastStates number
  bool grad_mode = true;
  bool replayable = true;
};

enum class StorageKind : uint8_t { kIntermediate, kBlockInput, kParameter };

// One a storage that the block made, read or wrote: there are about as many as ops, so they are kept small.
struct StorageRecord {
  Site site = 0;
  int64_t bytes = 0;
  StorageRef kept;      // the original, or what came back from host memory
  StorageRef replayed;  // made again in backward
  int32_t creator = kOutside;
  int32_t last_writer = kOutside;
  int32_t handles = 0;     // saved-tensor handles alive
  int32_t reads_left = 0;  // by ops that a replay still needs to run
  int32_t away = -1;       // Tape::away: its content waits in host memory
  int32_t outside = -1;    // Tape::outside_storages: no op of the block made it
  uint16_t version = 0;
  uint16_t replayed_version = 0;
  StorageKind kind = StorageKind::kIntermediate;
  bool must_save : 1 = false;   // made or written by something that cannot be replayed
  bool inner_unit : 1 = false;  // a parameter that is not there when a replay runs
  bool consumed : 1 = false;    // autograd packed it
  bool move : 1 = false;        // the plan moves it to host memory at the end of forward; an input, too
  bool copied : 1 = false;      // `kept` is a copy of a content that was overwritten since

  // Parameters aside: their changes are refused, as plain training does.
  bool ReadByReplays() const { return reads_left > 0 && kind != StorageKind::kParameter; }
};
static_assert(sizeof(StorageRecord) <= 64);

// A storage that no op of the block made: its version, and where that stood when the recording ended.
struct OutsideStorage {
  bool IsAsSeen() const { return version.current_version() == seen; }

  c10::VariableVersion version;
  uint32_t seen = 0;
  int32_t aliases = 0;  // tensors that share it and that autograd's saved variables hold
};

// A content that waits in host memory.
struct AwayValue {
  std::unique_ptr<HostCopy> copy;
  c10::weak_intrusive_ptr<c10::StorageImpl> original{StorageRef()};
  bool gone = false;      // the original of a block input is, and the base does without it
  bool arriving = false;  // memory on the device is taken
};

// Written by one recording thread; then read and replayed under `mutex` by whichever thread runs backward.
class Tape : public c10::intrusive_ptr_target {
 public:
  Tape(std::shared_ptr<Block> block, int32_t position, std::shared_ptr<TapeObserver> observer)
      : block(std::move(block)), position(position), observer_(std::move(observer)) {}
  ~Tape() override;
  // The last strong reference is gone; weak ones may outlive it.
  void release_resources() override { LetGo(); }

  // Of an argument that is a tensor or a list of them.
  c10::ArrayRef<ValueRef> ValuesOf(const Argument& argument) const {
    if (argument.kind == Argument::Kind::kTensor) return {values.data() + argument.index, 1};
    return {values.data() + lists[argument.index].first, lists[argument.index].count};
  }

  // A tensor without autograd history over `storage`, as `value` describes it.
  at::Tensor Build(const ValueRef& value, const StorageRef& storage) const;

  // Holds or lets go of the original of a storage. Planned bytes are accounted; must-save and outside storages are not.
  void Keep(int32_t storage, StorageRef original);
  void DropKept(int32_t storage);
  // Moves the kept original to host memory, where there is room; it stays where it is otherwise.
  void MoveAway(int32_t storage);
  void Fetch(int32_t storage);  // starts to bring it back
  void BringBack(int32_t storage);
  // Starts to bring back all that is away, for a backward that comes next. Takes `mutex`.
  void Prefetch();
  // The storage's content is kept or away, in this version.
  bool Has(const ValueRef& value) const {
    const StorageRecord& record = storages[value.storage];
    return (record.kept || record.away >= 0) && value.version == record.version;
  }
  // A replay will read this original of a storage.
  bool ReplaysFrom(int32_t storage, const c10::StorageImpl& original) const {
    const StorageRecord& record = storages[storage];
    return record.kept.get() == &original && record.ReadByReplays();
  }
  // What a replay or the backward reads of storages that others can write: their addresses, once recording has ended.
  std::vector<const c10::StorageImpl*> ReadLater() const;
  // The original is about to be overwritten: replays read `copy` instead.
  void UseCopy(int32_t storage, StorageRef copy);
  // A value that autograd packed, and that somebody else holds, is about to be overwritten: backward reads it as it then is, like
  // plain training does where versions do not tell.
  void ReadOverwritten(const c10::intrusive_ptr<c10::StorageImpl>& original);
  // The record that goes on with a storage that autograd packed, see Recorder::SplitOff().
  int32_t Latest(int32_t storage) const;
  // What ReadOverwritten() left for a storage, or null.
  StorageRef Overwritten(int32_t storage) const;
  void DropOverwritten(int32_t storage);
  void SetReplayed(int32_t storage, StorageRef made);
  void DropReplayed(int32_t storage);
  // As if nothing had been replayed, and no replay were prepared.
  void ForgetReplay();

  // Once recording has ended: which ops a replay would run, and which kept storages nobody needs.
  void Prepare();
  // After that: whether the plan moves something to host memory; moves it, and counts what stays.
  bool PlansMoves() const;
  void MovePlanned();
  // Sites of the inputs that nobody but the tape holds, those that moved included. To be asked when the block's caller has let go
  // of them, which is when the next block begins. Takes `mutex`.
  std::vector<Site> FindHeldInputs();

  // Backward will begin to read, and begins to. The caller holds `mutex`.
  void NoteBackwardAhead();
  void BeginBackward();

  // Tells the observer, once, that the last saved-tensor handle is gone. The caller holds `mutex`.
  void Close();

  int64_t BookkeepingBytes() const;

  const std::shared_ptr<Block> block;
  const int32_t position;  // in the order of execution

  std::vector<StorageRecord> storages;
  std::vector<OpRecord> ops;
  std::vector<Argument> arguments;
  std::vector<TensorList> lists;
  std::vector<ValueRef> values;
  std::vector<int32_t> writes;
  Views views;
  std::vector<c10::IValue> constants;
  std::vector<int32_t> consumed;                       // storages in order of packing
  std::vector<std::pair<int32_t, int32_t>> continued;  // {record, the one that goes on with its storage}
  // Consumed storages that outlived the block's forward: its outputs, mostly.
  std::vector<std::pair<int32_t, c10::weak_intrusive_ptr<c10::StorageImpl>>> exposed;
  std::vector<AwayValue> away;
  std::vector<OutsideStorage> outside_storages;
  RngStates rng;
  AutocastStates autocast;
  uint64_t structure_hash = 0;
  bool keeps_all = false;        // the plan keeps what autograd packs
  bool releases_inputs = false;  // nothing will be replayed: outside storages need no holding

  std::mutex mutex;
  std::vector<uint8_t> needed;  // op i has to run before backward is through
  std::vector<uint8_t> done;    // op i has run
  int32_t pending_ops = 0;      // needed ones that have not run
  int32_t live_handles = 0;
  bool recording = true;

  bool measured_costs = false;  // op times are taken
  bool backward_begun = false;
  std::vector<float> op_seconds;  // replay time an op; negative: not replayed
  std::vector<int64_t> op_workspace;
  std::vector<int64_t> forward_bytes;  // the most alive while each op ran, planned ones taken off; none outside profiled steps
  int64_t saved_bytes = 0;             // planned bytes kept at the end of forward
  int64_t moved_bytes = 0;             // and those moved away
  double replay_seconds = 0;
  int32_t replayed_ops = 0;

 private:
  void LetGo();

  const std::shared_ptr<TapeObserver> observer_;
  std::vector<std::pair<int32_t, StorageRef>> overwritten_;
  bool closed_ = false;
};

using TapePtr = c10::intrusive_ptr<Tape>;

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_TAPE_TAPE_H_
