#include "collectives/transports/common/signal_board.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace tidetape::collectives {
namespace {

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free,
              "locks do not work between processes");

void FutexWait(std::atomic<uint32_t>* word, uint32_t expected, absl::Duration at_most, bool shared) {
  const timespec timeout = absl::ToTimespec(at_most);
  syscall(SYS_futex, word, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, expected, &timeout, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>* word, bool shared) {
  syscall(SYS_futex, word, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

}  // namespace

size_t SignalBoard::BytesFor(int senders, int signals) {
  return sizeof(Counter) * static_cast<size_t>(senders) * static_cast<size_t>(signals);
}

SignalBoard::SignalBoard(absl::Span<std::byte> memory, int senders, int signals, bool shared)
    : counters_(reinterpret_cast<Counter*>(memory.data())), senders_(senders), signals_(signals), shared_(shared) {}

void SignalBoard::Raise(int sender, int signal) {
  Counter& c = counter(sender, signal);
  const uint64_t arrived = c.arrived.fetch_add(1, std::memory_order_seq_cst) + 1;
  if (c.sleepers.load(std::memory_order_seq_cst) == 0) return;
  const uint64_t wanted = c.wanted.load(std::memory_order_seq_cst);
  if (wanted != 0 && arrived >= wanted) Wake(c);
}

void SignalBoard::Ring() {
  for (int sender = 0; sender < senders_; ++sender) {
    for (int signal = 0; signal < signals_; ++signal) Wake(counter(sender, signal));
  }
}

void SignalBoard::Wake(Counter& c) {
  c.wanted.store(0, std::memory_order_seq_cst);
  c.doorbell.fetch_add(1, std::memory_order_seq_cst);
  if (c.sleepers.load(std::memory_order_seq_cst) > 0) FutexWakeAll(&c.doorbell, shared_);
}

// Lowers what is wanted to `count` more signals than were consumed.
void SignalBoard::Want(Counter& c, uint64_t count) {
  const uint64_t own = c.consumed.load(std::memory_order_seq_cst) + count;
  uint64_t wanted = c.wanted.load(std::memory_order_seq_cst);
  while ((wanted == 0 || wanted > own) && !c.wanted.compare_exchange_weak(wanted, own, std::memory_order_seq_cst)) {
  }
}

uint64_t SignalBoard::Available(int sender, int signal) const {
  const Counter& c = counter(sender, signal);
  // Consumed first: it never exceeds what had arrived by then.
  const uint64_t consumed = c.consumed.load(std::memory_order_acquire);
  return c.arrived.load(std::memory_order_seq_cst) - consumed;
}

bool SignalBoard::TryConsume(Counter& c, uint64_t count) {
  uint64_t consumed = c.consumed.load(std::memory_order_acquire);
  while (c.arrived.load(std::memory_order_seq_cst) - consumed >= count) {
    if (c.consumed.compare_exchange_weak(consumed, consumed + count, std::memory_order_acq_rel)) return true;
  }
  return false;
}

absl::Status SignalBoard::Wait(int sender, int signal, uint64_t count, absl::Time deadline, absl::Duration spin,
                               absl::FunctionRef<absl::Status()> failure) {
  Counter& c = counter(sender, signal);
  if (count == 0 || TryConsume(c, count)) return absl::OkStatus();
  absl::Time now = absl::Now();
  for (const absl::Time until = std::min(deadline, now + spin); now < until; now = absl::Now()) {
    for (int i = 0; i < 32; ++i) {
      if (TryConsume(c, count)) return absl::OkStatus();
      Pause();
    }
  }
  c.sleepers.fetch_add(1, std::memory_order_seq_cst);
  absl::Status status;
  while (true) {
    const uint32_t doorbell = c.doorbell.load(std::memory_order_seq_cst);
    Want(c, count);
    // Failure before the counter: what a rank sent before it was lost counts.
    status = failure();
    if (TryConsume(c, count)) {
      status = absl::OkStatus();
      break;
    }
    if (!status.ok()) break;
    now = absl::Now();
    if (now >= deadline) {
      status = absl::DeadlineExceededError(
          absl::StrCat(Available(sender, signal), " of ", count, " signals arrived before the deadline"));
      break;
    }
    // An hour bounds what the kernel is asked for; the loop goes on.
    FutexWait(&c.doorbell, doorbell, std::min(deadline - now, absl::Hours(1)), shared_);
  }
  c.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  return status;
}

}  // namespace tidetape::collectives
