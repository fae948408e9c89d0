// How the ranks of a group reach each other's memory: one-sided puts and signals, the shape of NCCL's ncclPutSignal, ncclSignal and
// ncclWaitSignal (2.29 and later). Schedules run over this interface alone and know no transport.
//
// Every rank owns an arena. All arenas of a group have the same size and the same layout, so that an offset means the same thing
// on all ranks. For each (sender, signal index) a rank holds a counter of the signals that have arrived and were not waited for.
//
// Order and visibility:
//  - All bytes of a put are visible in the peer's arena before the put's own signal can be waited for there.
//  - Puts and signals of one thread to one peer are placed in the order of the calls: whoever has waited for the n-th signal also
//    sees the bytes of all earlier puts from that sender. Between different peers, and between threads, there is no order.
//  - A put does not wait for the receiver. Writing where the receiver still reads is the caller's fault; schedules prevent it by
//    having the receiver signal that a slot is free.
//
// Failures: a rank that dies (or whose link is cut) breaks the group. From the moment that this is noticed, calls that would need
// to wait, and calls that would send, return UNAVAILABLE with the rank that was lost; signals that have already arrived can still
// be waited for. A rank that leaves in order (its Transport is destroyed) breaks only calls that name it. There is no way back: a
// broken group is destroyed and made anew. Every message names the call, the peer, the offset and the signal.
//   INVALID_ARGUMENT   no such peer or signal index
//   OUT_OF_RANGE       bytes outside the peer's arena
//   DEADLINE_EXCEEDED  the deadline passed; nothing was consumed
//   UNAVAILABLE        the peer or the group is gone
//
// Threads: all calls may be made from any thread at any time, destruction aside. Deadlines are wall-clock times; a deadline in the
// past asks without waiting. After fork() the child must not use the parent's transport; destroying its copy there harms nothing.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORT_H_
#define TIDETAPE_COLLECTIVES_TRANSPORT_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace tidetape::collectives {

// Belongs to one rank. Destroying it leaves the group: what was put before is still delivered where the peers are alive, within the
// transport's own bound on lingering; then no byte of the own arena is written any more.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Signal indices run from 0 to signals() - 1, for each peer.
  virtual int signals() const = 0;
  // The own arena, page-aligned, zeroed at the start.
  virtual absl::Span<std::byte> arena() = 0;

  // Copies `source` to `destination_offset` of the peer's arena, then raises the peer's counter for (this rank, `signal`) by one.
  // Asynchronous: `source`, in the arena or anywhere else, must stay unchanged until Flush or until an answer of the peer proves
  // that the bytes have arrived. Puts to the own rank are allowed, and so are empty ones; the ranges must not overlap, unless they
  // are the same memory. Blocks only where the transport's bounded queue to this peer is full, for a bounded time.
  virtual absl::Status PutSignal(int peer, absl::Span<const std::byte> source, uint64_t destination_offset, int signal) = 0;

  // The signal alone. In order with the puts before it.
  virtual absl::Status Signal(int peer, int signal) = 0;

  // Waits until `count` signals from `peer` on `signal` have arrived, and consumes exactly those. Zero returns at once.
  virtual absl::Status WaitSignal(int peer, int signal, uint64_t count, absl::Time deadline) = 0;

  // Waits until the sources of all puts so far may be changed. It says nothing of arrival: only signals do.
  virtual absl::Status Flush(absl::Time deadline) = 0;

  // PutSignal to each of `peers`, with as few writes as the transport can. After an error some of the peers may have got theirs.
  virtual absl::Status Multicast(absl::Span<const int> peers, absl::Span<const std::byte> source, uint64_t destination_offset,
                                 int signal) {
    for (int peer : peers) {
      if (absl::Status status = PutSignal(peer, source, destination_offset, signal); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // Ranks whose arenas are mapped into this process, ascending, the own rank included.
  virtual absl::Span<const int> LocalPeers() const = 0;
  // A local peer's arena for direct loads and stores; empty for all others. Direct stores become visible to the peer with the next
  // signal that this rank sends it; direct loads are safe after a signal from the peer.
  virtual absl::Span<std::byte> PeerArena(int peer) = 0;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORT_H_
