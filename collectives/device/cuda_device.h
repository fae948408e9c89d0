// A GPU, through CUDA's runtime library, which is loaded when it is asked for: nothing here needs CUDA to build or to start.
#ifndef TIDETAPE_COLLECTIVES_DEVICE_CUDA_DEVICE_H_
#define TIDETAPE_COLLECTIVES_DEVICE_CUDA_DEVICE_H_

#include <memory>
#include <string>

#include "collectives/device/device.h"

namespace tidetape::collectives {

// Every call makes the device current for its thread, as cudaSetDevice does, and leaves it so.
class CudaDevice final : public Device {
 public:
  // `library` is a path of libcudart; by default the one that the process has already, or that the loader finds.
  // FAILED_PRECONDITION where there is no library, no driver or no such device.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Open(int ordinal, const std::string& library = "");

  absl::StatusOr<Stream> MakeStream() override;
  void DestroyStream(Stream stream) override;
  absl::Status Copy(std::byte* to, const std::byte* from, size_t bytes, Stream stream) override;
  absl::Status Clear(std::byte* at, size_t bytes, Stream stream) override;
  absl::StatusOr<Event> Record(Stream stream) override;
  absl::StatusOr<bool> Passed(Event event) override;
  void DestroyEvent(Event event) override;

 private:
  // The runtime's functions by their C signatures; all return a cudaError_t.
  struct Runtime {
    int (*get_device_count)(int*);
    int (*set_device)(int);
    int (*stream_create)(void**, unsigned);
    int (*stream_destroy)(void*);
    int (*memcpy_async)(void*, const void*, size_t, int, void*);
    int (*memset_async)(void*, int, size_t, void*);
    int (*event_create)(void**, unsigned);
    int (*event_record)(void*, void*);
    int (*event_query)(void*);
    int (*event_destroy)(void*);
    const char* (*get_error_string)(int);
  };

  CudaDevice(int ordinal, const Runtime& runtime) : ordinal_(ordinal), runtime_(runtime) {}
  static absl::StatusOr<Runtime> Load(const std::string& library);
  absl::Status MakeCurrent();
  absl::Status Check(const char* call, int error) const;

  const int ordinal_;
  const Runtime runtime_;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_DEVICE_CUDA_DEVICE_H_
