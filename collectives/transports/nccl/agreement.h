// How ranks decide together, at the start, whether a step has worked on all of them.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_AGREEMENT_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_AGREEMENT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "collectives/transport.h"

namespace tidetape::collectives {

// Over a transport that exists already, the control transport. Uses its arena and its first signal.
class Agreement {
 public:
  // What the control transport must have.
  static uint64_t ArenaBytes(int size);
  static constexpr int kSignals = 2;
  // Never raised: whoever waits for it learns whether the peer is alive.
  static constexpr int kNeverSignal = 1;

  explicit Agreement(Transport& control) : control_(control) {}

  // All ranks call it with what became of their own part. OK where it worked on all and `value` is the same on all. Otherwise the
  // same verdict everywhere: the own error where there is one, UNAVAILABLE with the first rank that failed and its reason, or
  // FAILED_PRECONDITION with the rank whose `what` differs from rank 0's, and both values.
  absl::Status Reach(const absl::Status& own, absl::string_view what, absl::string_view value, absl::Time deadline);

 private:
  Transport& control_;
  uint64_t rounds_ = 0;
};

// OK while a call that names `peer` can still succeed by waiting; otherwise UNAVAILABLE. With the own rank: while no rank is lost.
absl::Status CheckAlive(Transport& control, int peer);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_AGREEMENT_H_
