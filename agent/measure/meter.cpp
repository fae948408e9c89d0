#include "agent/measure/meter.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/alignment.h>
#include <c10/core/impl/alloc_cpu.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

namespace tidetape::agent::meter {
namespace {

std::atomic<int64_t> live{0};
std::atomic<int64_t> peak{0};         // since the last TakePeak()
std::atomic<int64_t> public_peak{0};  // since the last ResetPeak()

void Raise(std::atomic<int64_t>& most, int64_t bytes) {
  int64_t seen = most.load(std::memory_order_relaxed);
  while (bytes > seen && !most.compare_exchange_weak(seen, bytes, std::memory_order_relaxed)) {
  }
}

void Add(int64_t bytes) {
  const int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  Raise(peak, now);
  Raise(public_peak, now);
}

void Remove(int64_t bytes) { live.fetch_sub(bytes, std::memory_order_relaxed); }

// In front of each block, so that freeing knows the size; as wide as torch's alignment, so that data stays aligned.
struct alignas(c10::gAlignment) Header {
  int64_t bytes;
};
static_assert(sizeof(Header) == c10::gAlignment);

void Free(void* data) {
  if (data == nullptr) return;
  auto* header = static_cast<Header*>(data) - 1;
  Remove(header->bytes);
  if (c10::memoryProfilingEnabled()) {
    c10::profiledCPUMemoryReporter().Delete(data);
  }
  c10::free_cpu(header);
}

class MeteringAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &Free, c10::Device(c10::DeviceType::CPU)};
    auto* header = static_cast<Header*>(c10::alloc_cpu(bytes + sizeof(Header)));
    header->bytes = static_cast<int64_t>(bytes);
    Add(header->bytes);
    void* data = header + 1;
    if (c10::memoryProfilingEnabled()) {
      c10::profiledCPUMemoryReporter().New(data, bytes);
    }
    return {data, data, &Free, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &Free; }

  void copy_data(void* destination, const void* source, std::size_t count) const override {
    std::memcpy(destination, source, count);
  }
};

// Owns what the storage had before, and gives its bytes back when that goes.
struct Adopted {
  c10::DataPtr data;
  int64_t bytes;
  ~Adopted() { Remove(bytes); }
};

void FreeAdopted(void* context) { delete static_cast<Adopted*>(context); }

MeteringAllocator& Instance() {
  static auto* allocator = new MeteringAllocator();  // libtorch may free through it until the process ends
  return *allocator;
}

}  // namespace

void Install() {
  static std::once_flag once;
  std::call_once(once, [] { c10::SetCPUAllocator(&Instance(), /*priority=*/255); });
}

void Adopt(c10::StorageImpl* storage) {
  if (!storage->device().is_cpu() || storage->data() == nullptr) return;
  const c10::DeleterFnPtr deleter = storage->data_ptr().get_deleter();
  if (deleter == &Free || deleter == &FreeAdopted) return;
  const auto bytes = static_cast<int64_t>(storage->nbytes());
  void* data = storage->mutable_data_ptr().mutable_get();
  auto* adopted = new Adopted{std::move(storage->mutable_data_ptr()), bytes};
  storage->set_data_ptr_noswap(c10::DataPtr(data, adopted, &FreeAdopted, c10::Device(c10::DeviceType::CPU)));
  if (storage->resizable()) storage->set_allocator(&Instance());
  Add(bytes);
}

void Count(int64_t bytes) { Add(bytes); }

int64_t LiveBytes() { return live.load(std::memory_order_relaxed); }

int64_t TakePeak() { return peak.exchange(live.load(std::memory_order_relaxed), std::memory_order_relaxed); }

int64_t PeakBytes() { return public_peak.load(std::memory_order_relaxed); }

void ResetPeak() { public_peak.store(live.load(std::memory_order_relaxed), std::memory_order_relaxed); }

}  // namespace tidetape::agent::meter
