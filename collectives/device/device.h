// The few things that transports ask of a GPU, thin enough that a host can stand in for one: streams, copies and events, with the
// meanings that CUDA gives them.
#ifndef TIDETAPE_COLLECTIVES_DEVICE_DEVICE_H_
#define TIDETAPE_COLLECTIVES_DEVICE_DEVICE_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tidetape::collectives {

// Work on a stream runs in the order in which it was given; between streams there is no order but by events. Thread-safe; must
// outlive its streams and events. After fork() the child must not call it.
class Device {
 public:
  using Stream = void*;  // on a GPU a cudaStream_t, which NCCL takes
  using Event = void*;

  virtual ~Device() = default;

  virtual absl::StatusOr<Stream> MakeStream() = 0;
  // What the stream still has to do may or may not be done. The caller sees to it that nothing in it waits for ever.
  virtual void DestroyStream(Stream stream) = 0;

  // Asynchronous. Both ends may be the device's memory, a peer's that is mapped here, or the host's. A source in pageable host
  // memory may be read before the call returns.
  virtual absl::Status Copy(std::byte* to, const std::byte* from, size_t bytes, Stream stream) = 0;
  // Asynchronous: sets all bytes to zero.
  virtual absl::Status Clear(std::byte* at, size_t bytes, Stream stream) = 0;

  // An event that passes when all that is now on the stream is done.
  virtual absl::StatusOr<Event> Record(Stream stream) = 0;
  // Does not wait.
  virtual absl::StatusOr<bool> Passed(Event event) = 0;
  virtual void DestroyEvent(Event event) = 0;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_DEVICE_DEVICE_H_
