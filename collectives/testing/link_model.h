// One direction of a slow link: a rate, a delay, and a queue of bounded size in front of it. Knows no socket and no clock.
#ifndef TIDETAPE_COLLECTIVES_TESTING_LINK_MODEL_H_
#define TIDETAPE_COLLECTIVES_TESTING_LINK_MODEL_H_

#include <cstdint>
#include <deque>

#include "absl/time/time.h"

namespace tidetape::collectives {

struct LinkOptions {
  double bytes_per_second = 1e9;
  // From a byte's departure to its arrival.
  absl::Duration delay = absl::ZeroDuration();
  // Bytes that may wait for departure.
  uint64_t queue_bytes = 1 << 20;
  // What a sender meets that offers more than the queue holds. Zero: it waits, as on a link with flow control. Otherwise the queue
  // has dropped, and the link carries nothing new for this long, as TCP waits for a retransmission timeout.
  absl::Duration stall = absl::ZeroDuration();
};

// Not thread-safe. Times never go back.
class LinkModel {
 public:
  explicit LinkModel(const LinkOptions& options) : options_(options) {}

  // How many bytes the queue takes now.
  uint64_t Room(absl::Time now);
  // Takes `bytes`, at most Room, and returns when they arrive at the other end.
  absl::Time Enter(uint64_t bytes, absl::Time now);
  // The sender has more although there is no room. Once for each time that the queue fills up.
  void Overrun(absl::Time now);
  // When the next bytes leave the queue; InfiniteFuture where it is empty.
  absl::Time NextDeparture() const { return waiting_.empty() ? absl::InfiniteFuture() : waiting_.front().departure; }

  uint64_t overruns() const { return overruns_; }

 private:
  struct Segment {
    absl::Time departure;
    uint64_t bytes;
  };

  void Depart(absl::Time now);

  const LinkOptions options_;
  std::deque<Segment> waiting_;
  uint64_t waiting_bytes_ = 0;
  absl::Time free_ = absl::InfinitePast();  // when all that entered has departed
  bool overrun_ = false;                    // since the queue was last empty
  uint64_t overruns_ = 0;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TESTING_LINK_MODEL_H_
