// Writes the steps of a schedule, and keeps two promises on the way: no put before the peer has said that its slot is free, and no
// more puts to a peer between two flushes than may be in flight.
#ifndef TIDETAPE_COLLECTIVES_SCHEDULE_BUILDER_H_
#define TIDETAPE_COLLECTIVES_SCHEDULE_BUILDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "collectives/schedule.h"
#include "collectives/schedule_options.h"

namespace tidetape::collectives {

class ScheduleBuilder {
 public:
  // `slot`: the unit's. `ready_signal`: a peer raises it once before it may be written to.
  ScheduleBuilder(std::string collective, std::string unit, int32_t slot, int32_t rank, int32_t ready_signal,
                  const ScheduleOptions& options);

  void BeginPhase(std::string name);
  // Tells a peer that it may write here.
  void Ready(int32_t peer) { Signal(peer, ready_signal_); }
  // Waits until the peer has said so, where that was not yet done. Puts do it by themselves.
  void AwaitReady(int32_t peer);
  void Put(int32_t peer, Place source, int64_t destination, int64_t bytes, int32_t signal, bool paced, int32_t slot = -1);
  // One step to all peers, or one each where the options say that it is too large. No peers: no step.
  void Multicast(const std::vector<int32_t>& peers, Place source, int64_t destination, int64_t bytes, int32_t signal);
  void Signal(int32_t peer, int32_t signal, int32_t slot = -1);
  // No step where count is 0.
  void Wait(int32_t peer, int32_t signal, int32_t count, int32_t slot = -1);
  void Flush();
  // kStore, kAdd or kScale, by elements of `dtype`.
  void Compute(StepKind kind, DType dtype, Place source, Place destination, int64_t elements);

  // kSum of the sources in their order; kStore of a single one in the arena.
  void Sum(DType dtype, std::vector<Place> sources, Place destination, int64_t elements);

  Schedule Finish() { return std::move(schedule_); }

 private:
  void Prepare(int32_t peer);

  Schedule schedule_;
  int32_t ready_signal_;
  int64_t multicast_most_bytes_;
  absl::flat_hash_set<int32_t> ready_;
  absl::flat_hash_map<int32_t, int32_t> in_flight_;
};

// The sender's end of a row of slots in a peer's staging. A message takes the next slot; from the second use of a slot on, the
// sender waits until the receiver has freed it.
class OutChannel {
 public:
  OutChannel(int32_t peer, int32_t data, int32_t free, int32_t slots) : peer_(peer), data_(data), free_(free), slots_(slots) {}
  int32_t peer() const { return peer_; }
  int32_t data() const { return data_; }
  int32_t sent() const { return sent_; }
  // The slot of the next message; may add a wait.
  int32_t Acquire(ScheduleBuilder& builder) {
    const int32_t slot = sent_ % slots_;
    if (sent_ >= slots_) builder.Wait(peer_, free_, 1, slot);
    ++sent_;
    return slot;
  }

 private:
  int32_t peer_, data_, free_, slots_;
  int32_t sent_ = 0;
};

// The receiver's end.
class InChannel {
 public:
  // `messages`: how many there will be in all, so that the last ones free no slot that nobody waits for.
  InChannel(int32_t peer, int32_t data, int32_t free, int32_t slots, int32_t messages)
      : peer_(peer), data_(data), free_(free), slots_(slots), messages_(messages) {}
  int32_t received() const { return received_; }
  // Waits for the `puts` of the next message; gives its slot.
  int32_t Await(ScheduleBuilder& builder, int32_t puts) {
    const int32_t slot = received_ % slots_;
    builder.Wait(peer_, data_, puts, slot);
    return slot;
  }
  // After the slot's last reader.
  void Release(ScheduleBuilder& builder) {
    if (received_ + slots_ < messages_) builder.Signal(peer_, free_, received_ % slots_);
    ++received_;
  }

 private:
  int32_t peer_, data_, free_, slots_, messages_;
  int32_t received_ = 0;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_SCHEDULE_BUILDER_H_
