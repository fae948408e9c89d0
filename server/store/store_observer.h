// Hears how a store does, for metrics.
#ifndef TIDETAPE_SERVER_STORE_STORE_OBSERVER_H_
#define TIDETAPE_SERVER_STORE_STORE_OBSERVER_H_

#include <cstddef>

#include "absl/time/time.h"

namespace tidetape::server {

// Calls come from the store's own threads and must not block.
class StoreObserver {
 public:
  virtual ~StoreObserver() = default;

  // A transaction ended: how many writes it held, how long it took from its begin to its end on stable storage, and whether it
  // was committed.
  virtual void OnTransaction(size_t writes, absl::Duration took, bool committed) = 0;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_STORE_OBSERVER_H_
