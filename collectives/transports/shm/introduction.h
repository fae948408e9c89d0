// How the ranks of one host hand each other their memory: file descriptors over Unix sockets.
//
// Each rank listens on an abstract socket (no file, gone with the process) whose name it publishes. A rank connects to all lower
// ranks and accepts the higher ones. Before a descriptor changes hands both sides check that the other runs as the same user
// (SO_PEERCRED) and shows the group's token; strangers are dropped without an answer.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_SHM_INTRODUCTION_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_SHM_INTRODUCTION_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "collectives/transports/common/unique_fd.h"
#include "collectives/transports/rendezvous/rendezvous.h"

namespace tidetape::collectives {

// Where a rank waits for the others of its host.
class LocalListener {
 public:
  static absl::StatusOr<LocalListener> Open();

  // As Member::shm_address: printable.
  const std::string& address() const { return address_; }
  int fd() const { return socket_.get(); }

 private:
  LocalListener(UniqueFd socket, std::string address) : socket_(std::move(socket)), address_(std::move(address)) {}

  UniqueFd socket_;
  std::string address_;
};

// What a rank gives to the others. Descriptors are borrowed.
struct Introduction {
  int rank = 0;
  Token token = {};
  // Not OK: the rank cannot take part; it gives no descriptors then.
  absl::Status status;
  int memory = -1;
  int pidfd = -1;
  // Where the rank is the host's lowest and there is a shared region.
  int shared_region = -1;
};

// What another rank gave.
struct Neighbour {
  int rank = 0;
  absl::Status status;
  UniqueFd memory;
  UniqueFd pidfd;
  UniqueFd shared_region;
  // Stays open for as long as the rank is in the group.
  UniqueFd connection;
};

// Exchanges introductions with all of `local_ranks` (ascending, own rank included). DEADLINE_EXCEEDED and UNAVAILABLE name the
// rank.
absl::StatusOr<std::vector<Neighbour>> IntroduceAll(const LocalListener& listener, const Introduction& self, const Roster& roster,
                                                    absl::Span<const int> local_ranks, absl::Time deadline);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_SHM_INTRODUCTION_H_
