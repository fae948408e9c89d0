// The key-value store through which the ranks of a job find each other, such as the one that torch.distributed was started with.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_RENDEZVOUS_STORE_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_RENDEZVOUS_STORE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tidetape::collectives {

// Contract: a value that Wait has returned to one rank is returned to all that ask later; Set is atomic (nobody sees half a value).
// Keys are written once. Keys are made of letters, digits, '/', '.', '-' and '_'; values are any bytes. Need not be thread-safe.
class Store {
 public:
  virtual ~Store() = default;
  virtual absl::Status Set(absl::string_view key, absl::string_view value) = 0;
  // The key's value, as soon as somebody sets it. DEADLINE_EXCEEDED where nobody does.
  virtual absl::StatusOr<std::string> Wait(absl::string_view key, absl::Time deadline) = 0;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_RENDEZVOUS_STORE_H_
