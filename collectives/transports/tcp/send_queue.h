// What one rank still has to send to one peer: a bounded queue of puts, cut into chunks, paced, framed. Knows no socket and no
// clock.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_SEND_QUEUE_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_SEND_QUEUE_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "collectives/transports/tcp/frame.h"
#include "collectives/transports/tcp/pacing.h"

namespace tidetape::collectives {

// Not thread-safe. Times are of any one clock.
class SendQueue {
 public:
  SendQueue(size_t most_puts, const Pacing& pacing);

  void set_pacing(const Pacing& pacing) { pacing_ = pacing; }

  bool full() const { return puts_.size() >= most_puts_; }
  // Nothing is left that waits for the kernel.
  bool empty() const { return puts_.empty() && frames_.empty() && acks_ == 0 && !goodbye_; }

  // Not while full. Returns the put's number: the source may be reused when taken() reaches it.
  uint64_t Push(absl::Span<const std::byte> source, uint64_t offset, int signal);
  uint64_t pushed() const { return pushed_; }
  uint64_t taken() const { return taken_; }

  // The peer has sent a counted chunk that was placed: it is told so in time.
  void AddAck() { ++acks_; }
  // The peer has placed chunks that this queue had counted.
  void Acked(uint64_t chunks) { in_flight_ -= chunks < in_flight_ ? chunks : in_flight_; }
  // Sent after all puts.
  void PushGoodbye(int lost_rank);
  // Sent as soon as the frame in hand is finished.
  void PushGoodbyeAck() { control_.push_back({.type = FrameType::kGoodbyeAck}); }
  // Forgets all that was not started; it counts as taken.
  void Drop();

  // What to send next, in order; empty where there is nothing, or not yet. Valid until the next call of anything else.
  absl::Span<const iovec> Next(absl::Time now);
  // The kernel took the first `bytes` bytes of Next.
  void Sent(size_t bytes, absl::Time now);
  // When Next, empty now, has something to send without any other call; InfiniteFuture where that is never.
  absl::Time NextTime() const;

 private:
  struct Put {
    absl::Span<const std::byte> rest;
    uint64_t offset = 0;
    int signal = 0;
  };
  struct Frame {
    FrameHeader header;
    absl::Span<const std::byte> bytes;
    size_t sent = 0;  // of header and bytes
    bool ends_put = false;
  };

  void Prepare(absl::Time now);
  bool MayStartChunk(absl::Time now) const;

  const size_t most_puts_;
  Pacing pacing_;
  std::deque<Put> puts_;
  std::deque<Frame> frames_;  // being sent; the first may be partly gone
  std::deque<FrameHeader> control_;
  bool goodbye_ = false;  // waits for the puts
  bool dropped_ = false;  // the frame in hand is the last of all puts
  FrameHeader goodbye_header_;
  uint64_t acks_ = 0;
  uint64_t pushed_ = 0;
  uint64_t taken_ = 0;
  uint64_t in_flight_ = 0;
  absl::Time next_chunk_ = absl::InfinitePast();
  std::vector<iovec> parts_;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_SEND_QUEUE_H_
