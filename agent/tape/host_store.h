// Where moved values wait for backward: memory that the step peak does not count.
//
// On the CPU that is a file without a name in the directory TIDETAPE_HOST_DIR (else TMPDIR, else /tmp), so that the path of moving
// is the same as on a device, whose host memory is the CPU's.
#ifndef TIDETAPE_AGENT_TAPE_HOST_STORE_H_
#define TIDETAPE_AGENT_TAPE_HOST_STORE_H_

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <memory>

namespace tidetape::agent {

// The content of one storage in host memory. Its space is free again when it goes. Not thread-safe.
class HostCopy {
 public:
  virtual ~HostCopy() = default;
  // Takes memory on the device, starts to bring the content back, and returns at once.
  virtual void Prefetch() = 0;
  // The content in a new storage, waiting for it where needed. To be called once, after Prefetch(). Throws c10::Error where it
  // cannot be read back.
  virtual c10::intrusive_ptr<c10::StorageImpl> Get() = 0;
};

// Copies the content of `storage`. Null where there is no room or no host memory for the storage's device: the value then stays
// where it is.
std::unique_ptr<HostCopy> MoveToHost(const c10::intrusive_ptr<c10::StorageImpl>& storage);

// The most bytes that may be in host memory at once; at first without a limit. Of the process, as the host's memory is.
void LimitHostBytes(int64_t bytes);

// Moves some megabytes there and back: bytes a second of one way, as a mean of both; 0 where there is no host memory.
double MeasureHostBandwidth();

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_TAPE_HOST_STORE_H_
