// What a planner or a user may choose about NCCL. The same on all ranks.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_NCCL_OPTIONS_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_NCCL_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace tidetape::collectives {

struct NcclOptions {
  // Of libnccl.so.2; empty: what the loader finds. See NcclLibrary.
  std::string library;
  // Up to so many bytes a multicast within the node is one write by a copy engine to the multicast address; larger ones are copied
  // to each rank, which is faster then.
  uint64_t multicast_most_bytes = uint64_t{256} << 10;
  // On their way to one peer at a time; 2 to 256, NCCL's limit. A put that finds so many waits.
  int puts_in_flight = 256;
  // For puts to other nodes from memory outside the arena: they pass through here, one more copy.
  uint64_t outbox_bytes = uint64_t{1} << 20;
  // How long a put may wait for its turn.
  absl::Duration queue_limit = absl::Seconds(60);
  // How long a rank that leaves waits for what it has sent.
  absl::Duration linger = absl::Seconds(5);
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_NCCL_OPTIONS_H_
