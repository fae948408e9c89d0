// Two hosts on one machine: network namespaces joined by a pair of virtual Ethernet interfaces.
#ifndef TIDETAPE_COLLECTIVES_TESTING_TWO_HOSTS_H_
#define TIDETAPE_COLLECTIVES_TESTING_TWO_HOSTS_H_

#include <sys/types.h>

#include <array>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tidetape::collectives {

// Needs root and iproute2: PERMISSION_DENIED elsewhere. The namespaces and interfaces go with the object, or with its process.
class TwoHosts {
 public:
  static absl::StatusOr<std::unique_ptr<TwoHosts>> Make();
  ~TwoHosts();

  // Moves the calling process, which must have no other threads, to host 0 or 1.
  absl::Status Enter(int host) const;
  // The host's address on the link.
  static std::string Address(int host);

  // Stops and restores all traffic between the hosts, without a word to either.
  absl::Status Cut() const;
  absl::Status Mend() const;

 private:
  TwoHosts() = default;
  absl::Status Run(int host, const std::string& command) const;

  // Processes that do nothing but hold a namespace each.
  std::array<pid_t, 2> holders_ = {-1, -1};
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TESTING_TWO_HOSTS_H_
