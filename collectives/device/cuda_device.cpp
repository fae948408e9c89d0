#include "collectives/device/cuda_device.h"

#include <dlfcn.h>

#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tidetape::collectives {
namespace {

// From driver_types.h.
constexpr int kSuccess = 0;
constexpr int kNotReady = 600;
constexpr unsigned kNonBlocking = 1;    // cudaStreamNonBlocking: no order with the default stream
constexpr unsigned kDisableTiming = 2;  // cudaEventDisableTiming
constexpr int kMemcpyDefault = 4;       // the kinds of memory follow from the addresses

}  // namespace

absl::StatusOr<CudaDevice::Runtime> CudaDevice::Load(const std::string& library) {
  void* handle = nullptr;
  for (const std::string& name : library.empty() ? std::vector<std::string>{"libcudart.so.13", "libcudart.so.12", "libcudart.so"}
                                                 : std::vector<std::string>{library}) {
    // Never closed: CUDA does not unload.
    handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) break;
  }
  if (handle == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("no CUDA runtime library: ", dlerror()));
  }
  Runtime runtime = {};
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  find(runtime.get_device_count, "cudaGetDeviceCount");
  find(runtime.set_device, "cudaSetDevice");
  find(runtime.stream_create, "cudaStreamCreateWithFlags");
  find(runtime.stream_destroy, "cudaStreamDestroy");
  find(runtime.memcpy_async, "cudaMemcpyAsync");
  find(runtime.memset_async, "cudaMemsetAsync");
  find(runtime.event_create, "cudaEventCreateWithFlags");
  find(runtime.event_record, "cudaEventRecord");
  find(runtime.event_query, "cudaEventQuery");
  find(runtime.event_destroy, "cudaEventDestroy");
  find(runtime.get_error_string, "cudaGetErrorString");
  if (!missing.empty()) return absl::FailedPreconditionError(absl::StrCat("the CUDA runtime library has no ", missing));
  return runtime;
}

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Open(int ordinal, const std::string& library) {
  absl::StatusOr<Runtime> runtime = Load(library);
  if (!runtime.ok()) return runtime.status();
  int devices = 0;
  if (const int error = runtime->get_device_count(&devices); error != kSuccess) {
    return absl::FailedPreconditionError(absl::StrCat("no GPU: cudaGetDeviceCount: ", runtime->get_error_string(error)));
  }
  if (ordinal < 0 || ordinal >= devices) {
    return absl::FailedPreconditionError(absl::StrCat("no GPU ", ordinal, ": there are ", devices));
  }
  return std::unique_ptr<CudaDevice>(new CudaDevice(ordinal, *runtime));
}

absl::Status CudaDevice::Check(const char* call, int error) const {
  if (error == kSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, " on GPU ", ordinal_, ": ", runtime_.get_error_string(error)));
}

absl::Status CudaDevice::MakeCurrent() { return Check("cudaSetDevice", runtime_.set_device(ordinal_)); }

absl::StatusOr<Device::Stream> CudaDevice::MakeStream() {
  if (absl::Status status = MakeCurrent(); !status.ok()) return status;
  Stream stream = nullptr;
  absl::Status status = Check("cudaStreamCreateWithFlags", runtime_.stream_create(&stream, kNonBlocking));
  if (!status.ok()) return status;
  return stream;
}

void CudaDevice::DestroyStream(Stream stream) {
  if (MakeCurrent().ok()) runtime_.stream_destroy(stream);
}

absl::Status CudaDevice::Copy(std::byte* to, const std::byte* from, size_t bytes, Stream stream) {
  if (bytes == 0) return absl::OkStatus();
  if (absl::Status status = MakeCurrent(); !status.ok()) return status;
  return Check("cudaMemcpyAsync", runtime_.memcpy_async(to, from, bytes, kMemcpyDefault, stream));
}

absl::Status CudaDevice::Clear(std::byte* at, size_t bytes, Stream stream) {
  if (absl::Status status = MakeCurrent(); !status.ok()) return status;
  return Check("cudaMemsetAsync", runtime_.memset_async(at, 0, bytes, stream));
}

absl::StatusOr<Device::Event> CudaDevice::Record(Stream stream) {
  if (absl::Status status = MakeCurrent(); !status.ok()) return status;
  Event event = nullptr;
  absl::Status status = Check("cudaEventCreateWithFlags", runtime_.event_create(&event, kDisableTiming));
  if (!status.ok()) return status;
  status = Check("cudaEventRecord", runtime_.event_record(event, stream));
  if (status.ok()) return event;
  runtime_.event_destroy(event);
  return status;
}

absl::StatusOr<bool> CudaDevice::Passed(Event event) {
  if (absl::Status status = MakeCurrent(); !status.ok()) return status;
  const int error = runtime_.event_query(event);
  if (error == kNotReady) return false;
  if (absl::Status status = Check("cudaEventQuery", error); !status.ok()) return status;
  return true;
}

void CudaDevice::DestroyEvent(Event event) {
  if (MakeCurrent().ok()) runtime_.event_destroy(event);
}

}  // namespace tidetape::collectives
