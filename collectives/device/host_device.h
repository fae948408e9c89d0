// A Device without a GPU: a stream is a thread with a queue, and memory is memory.
#ifndef TIDETAPE_COLLECTIVES_DEVICE_HOST_DEVICE_H_
#define TIDETAPE_COLLECTIVES_DEVICE_HOST_DEVICE_H_

#include "collectives/device/device.h"

namespace tidetape::collectives {

// Streams are HostStreams (host_stream.h). Destroying one ends its thread after the work that it has begun; what is queued behind
// that is dropped.
class HostDevice final : public Device {
 public:
  using CopyFunction = void (*)(void* to, const void* from, size_t bytes);

  // `copy` does the copies, so that whoever stands in for a library that maps memory specially can see them.
  explicit HostDevice(CopyFunction copy = nullptr);

  absl::StatusOr<Stream> MakeStream() override;
  void DestroyStream(Stream stream) override;
  absl::Status Copy(std::byte* to, const std::byte* from, size_t bytes, Stream stream) override;
  absl::Status Clear(std::byte* at, size_t bytes, Stream stream) override;
  absl::StatusOr<Event> Record(Stream stream) override;
  absl::StatusOr<bool> Passed(Event event) override;
  void DestroyEvent(Event event) override;

 private:
  const CopyFunction copy_;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_DEVICE_HOST_DEVICE_H_
