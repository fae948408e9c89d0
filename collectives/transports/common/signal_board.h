// Counters of signals that have arrived at one rank, in memory that the senders can write: shared memory, or the receiver's own
// memory where a thread of its own writes for the senders.
//
// A waiter spins for a moment, then sleeps on the futex of the counter that it waits for. It is woken once, when the last signal
// that it wants has come: on a machine with more ranks than cores each wake for nothing costs two changes of context. A sender
// raises its counter, then looks for sleepers and for how many signals they want; a waiter declares itself a sleeper and what it
// wants, then looks at the counter. Both in sequentially consistent order, so at least one of them sees the other.
//
// What sleepers want is a hint that may be too low, never too high: a waiter lowers it to its own count, a sender that has reached
// it takes it away before it changes the futex, and whoever wakes, or finds the futex changed, says anew what it wants.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_COMMON_SIGNAL_BOARD_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_COMMON_SIGNAL_BOARD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace tidetape::collectives {

// One counter a (sender, signal), each in a cache line of its own. Handles are cheap; any number may point at one board. Raise and
// Ring may come from any process that maps the board; waiting is for the owner alone, from any thread.
class SignalBoard {
 public:
  static size_t BytesFor(int senders, int signals);

  // `memory` holds BytesFor(senders, signals) bytes, zeroed before first use and aligned to 64. `shared` says whether other
  // processes map it.
  SignalBoard(absl::Span<std::byte> memory, int senders, int signals, bool shared);

  void Raise(int sender, int signal);
  // Wakes all waiters on all counters, which look at `failure` again.
  void Ring();

  // How many signals have arrived and were not consumed.
  uint64_t Available(int sender, int signal) const;

  // Waits for `count` signals and consumes them. Returns DEADLINE_EXCEEDED with how many of them are there, or what `failure`
  // returns where that is not OK; both without consuming. `failure` is asked only when there is reason to wait. Spins for `spin`
  // first.
  absl::Status Wait(int sender, int signal, uint64_t count, absl::Time deadline, absl::Duration spin,
                    absl::FunctionRef<absl::Status()> failure);

 private:
  struct alignas(64) Counter {
    std::atomic<uint64_t> arrived;
    // Written by the receiver only, but beside what it reads anyway.
    std::atomic<uint64_t> consumed;
    std::atomic<uint64_t> wanted;  // of all that arrives, what the first sleeper waits for; 0: nothing
    std::atomic<uint32_t> doorbell;
    std::atomic<uint32_t> sleepers;
  };

  Counter& counter(int sender, int signal) const { return counters_[static_cast<size_t>(sender) * signals_ + signal]; }
  bool TryConsume(Counter& counter, uint64_t count);
  static void Want(Counter& counter, uint64_t count);
  void Wake(Counter& counter);

  Counter* counters_;
  int senders_, signals_;
  bool shared_;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_COMMON_SIGNAL_BOARD_H_
