// A tmpfs that only this process and its children see.
#ifndef TIDETAPE_COLLECTIVES_TESTING_PRIVATE_TMPFS_H_
#define TIDETAPE_COLLECTIVES_TESTING_PRIVATE_TMPFS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace tidetape::collectives {

// Moves the process into a mount namespace of its own and mounts a tmpfs of at most `bytes` at `folder`. Works for root, and for
// others where users may make namespaces; PERMISSION_DENIED elsewhere. The process must have no other threads.
absl::Status MountPrivateTmpfs(const std::string& folder, uint64_t bytes);

// Bytes that are taken in the file system at `folder`.
uint64_t BytesTaken(const std::string& folder);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TESTING_PRIVATE_TMPFS_H_
