// Shared memory without a name: gone with the last process that holds it, however that process ends.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_SHM_ANONYMOUS_FILE_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_SHM_ANONYMOUS_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/transports/common/unique_fd.h"

namespace tidetape::collectives {

struct ByteRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// A file of `bytes` bytes that never had a name (O_TMPFILE, mode 0600) in `folder`, a tmpfs such as /dev/shm. The memory of
// `reserved` is taken now, so that a full folder is RESOURCE_EXHAUSTED here and not SIGBUS at a later store; the rest stays a hole
// that must not be touched. `purpose` completes "cannot reserve 4096 bytes of shared memory for ...".
absl::StatusOr<UniqueFd> MakeAnonymousFile(const std::string& folder, uint64_t bytes, const std::vector<ByteRange>& reserved,
                                           const std::string& purpose);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_SHM_ANONYMOUS_FILE_H_
