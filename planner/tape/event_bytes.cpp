#include "planner/tape/event_bytes.h"

#include <algorithm>
#include <limits>
#include <span>

namespace tidetape::planner {
namespace {

// Consumed storages are there from when they must be, saved or made again, until their release: must-save ones from the beginning,
// the others from the first event that reads them, or that reads something which must be recomputed from them. What a plan saves is
// there as well, but for what is counted already, was released or is not consumed, so that replay may have let it go.
class Walk {
 public:
  explicit Walk(const TapeIndex& index)
      : index_(index),
        held_(index.tape().storages.size(), false),
        released_(held_),
        must_recompute_(held_),
        ran_(index.tape().ops.size(), false) {
    for (size_t s = 0; s < held_.size(); ++s) {
      const auto storage = static_cast<int32_t>(s);
      if (!index.consumed(storage)) passed_bytes_ += SavableBytes(storage);
      if (index.tape().storages[s].must_save) Hold(storage);
      must_recompute_[s] = index.tape().storages[s].must_recompute;
    }
  }

  // As if the tape said so. Before the first event.
  void Decide(int32_t storage, bool saved) {
    if (saved) Hold(storage);
    must_recompute_[storage] = !saved;
  }

  static size_t Events(const BlockTape& tape) { return std::max<size_t>(1, tape.backward.size()); }

  void ReadAt(size_t event) {
    const BlockTape& tape = index_.tape();
    for (int32_t s : tape.backward.empty() ? tape.consumed : tape.backward[event].reads) MakePresent(s);
  }

  void ReleaseAt(size_t event) {
    const BlockTape& tape = index_.tape();
    for (int32_t s : tape.backward.empty() ? tape.consumed : tape.backward[event].releases) Release(s);
  }

  void GoTo(size_t event) {
    for (size_t e = 0; e < event; ++e) {
      ReadAt(e);
      ReleaseAt(e);
    }
    ReadAt(event);
  }

  EventBytes Bytes() const { return {bytes_, passed_bytes_}; }
  const Flags& held() const { return held_; }
  const Flags& released() const { return released_; }

 private:
  void Hold(int32_t s) {
    if (!index_.consumed(s) || held_[s] || released_[s]) return;
    held_[s] = true;
    bytes_ += index_.save_bytes(s);
    passed_bytes_ += SavableBytes(s);
  }

  void Release(int32_t s) {
    if (!index_.consumed(s) || released_[s]) return;
    if (held_[s]) {
      bytes_ -= index_.save_bytes(s);
    } else {
      passed_bytes_ += SavableBytes(s);
    }
    held_[s] = false;
    released_[s] = true;
  }

  void MakePresent(int32_t storage) {
    std::vector<int32_t> stack{storage};
    while (!stack.empty()) {
      const int32_t s = stack.back();
      stack.pop_back();
      if (!index_.intermediate(s)) continue;
      Hold(s);
      const int32_t op = index_.last_writer(s);
      if (!must_recompute_[s] || op < 0 || ran_[op]) continue;
      ran_[op] = true;
      for (const OpInput& input : index_.inputs(op)) {
        if (input.last) stack.push_back(input.storage);
      }
      for (int32_t output : index_.outputs(op)) Hold(output);
    }
  }

  int64_t SavableBytes(int32_t s) const {
    return index_.intermediate(s) && !index_.tape().storages[s].must_recompute ? index_.save_bytes(s) : 0;
  }

  const TapeIndex& index_;
  Flags held_;  // by storage: consumed, present, and not released
  Flags released_;
  Flags must_recompute_;
  Flags ran_;  // by op: must have been replayed
  int64_t bytes_ = 0;
  int64_t passed_bytes_ = 0;  // what plans may save and is counted, was released or is not consumed
};

// What is there once a saved storage that backward does not consume was let go: the consumed storage at the end of the ops that
// read it, where each is the only reader of what the one before it makes, and makes nothing else.
struct StandIn {
  int32_t storage = -1;
  int64_t bytes = 0;  // there in any case from the storage to the stand-in
};

StandIn FindStandIn(const TapeIndex& index, int32_t storage) {
  int64_t bytes = index.save_bytes(storage);
  while (true) {
    const std::span<const int32_t> touching = index.touching(storage);
    if (index.rewritten(storage) || touching.size() != 2 || touching[0] != index.last_writer(storage)) return {};
    const std::span<const int32_t> outputs = index.outputs(touching[1]);
    if (outputs.size() != 1 || !index.intermediate(outputs[0]) || index.rewritten(outputs[0])) return {};
    storage = outputs[0];
    bytes = std::min(bytes, index.save_bytes(storage));
    if (index.consumed(storage)) return {storage, bytes};
  }
}

}  // namespace

std::vector<EventBytes> BytesUnderEveryPlan(const TapeIndex& index) {
  Walk walk(index);
  std::vector<EventBytes> result;
  for (size_t e = 0; e < Walk::Events(index.tape()); ++e) {
    walk.ReadAt(e);
    result.push_back(walk.Bytes());
    walk.ReleaseAt(e);
  }
  return result;
}

Flags HeldAt(const TapeIndex& index, size_t event) {
  Walk walk(index);
  walk.GoTo(event);
  return walk.held();
}

int64_t BytesHeldAt(const TapeIndex& index, size_t event, int32_t storage, bool saved) {
  Walk walk(index);
  walk.Decide(storage, saved);
  walk.GoTo(event);
  return walk.Bytes().held;
}

BlockTape TapeAtEvent(const TapeIndex& index, size_t event) {
  Walk walk(index);
  walk.GoTo(event);
  BlockTape tape = index.tape();
  std::vector<int32_t> lone;
  for (size_t s = 0; s < tape.storages.size(); ++s) {
    const auto storage = static_cast<int32_t>(s);
    const bool counts = index.consumed(storage) && !walk.held()[s] && !walk.released()[s];
    if (!counts) tape.storages[s].held_anyway = true;
    if (!index.consumed(storage) && index.intermediate(storage) && index.save_bytes(storage) > 0) lone.push_back(storage);
  }
  std::sort(lone.begin(), lone.end(), [&](int32_t a, int32_t b) { return index.bytes(a) > index.bytes(b); });
  Flags claimed(tape.storages.size(), false);
  for (int32_t s : lone) {
    const StandIn stand_in = FindStandIn(index, s);
    if (stand_in.storage < 0 || claimed[stand_in.storage]) continue;
    if (walk.held()[stand_in.storage] || walk.released()[stand_in.storage]) continue;
    claimed[stand_in.storage] = true;
    tape.storages[s].held_anyway = false;
    tape.storages[s].bytes = stand_in.bytes;
  }
  return tape;
}

}  // namespace tidetape::planner
