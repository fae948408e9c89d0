#include "collectives/device/host_device.h"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "collectives/device/host_stream.h"

namespace tidetape::collectives {
namespace {

class Worker final : public HostStream {
 public:
  Worker() : HostStream{&Worker::EnqueueC}, thread_([this] { Run(); }) {}
  ~Worker() {
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void Enqueue(std::function<void()> work) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    changed_.notify_all();
  }

 private:
  static void EnqueueC(HostStream* self, void (*work)(void*), void* argument) {
    static_cast<Worker*>(self)->Enqueue([work, argument] { work(argument); });
  }

  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ended_ || !queue_.empty(); });
      if (ended_) return;
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;  // guarded by mutex_
  bool ended_ = false;                       // guarded by mutex_
  std::thread thread_;
};

Worker* WorkerOf(Device::Stream stream) { return static_cast<Worker*>(static_cast<HostStream*>(stream)); }

// Shared with the work that sets it, which may run after the event was destroyed.
using Flag = std::shared_ptr<std::atomic<bool>>;

void CopyBytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memmove(to, from, bytes);
}

}  // namespace

HostDevice::HostDevice(CopyFunction copy) : copy_(copy != nullptr ? copy : CopyBytes) {}

absl::StatusOr<Device::Stream> HostDevice::MakeStream() { return static_cast<HostStream*>(new Worker); }

void HostDevice::DestroyStream(Stream stream) { delete WorkerOf(stream); }

absl::Status HostDevice::Copy(std::byte* to, const std::byte* from, size_t bytes, Stream stream) {
  WorkerOf(stream)->Enqueue([copy = copy_, to, from, bytes] { copy(to, from, bytes); });
  return absl::OkStatus();
}

absl::Status HostDevice::Clear(std::byte* at, size_t bytes, Stream stream) {
  WorkerOf(stream)->Enqueue([at, bytes] { std::memset(at, 0, bytes); });
  return absl::OkStatus();
}

absl::StatusOr<Device::Event> HostDevice::Record(Stream stream) {
  auto passed = std::make_shared<std::atomic<bool>>(false);
  WorkerOf(stream)->Enqueue([passed] { passed->store(true, std::memory_order_release); });
  return new Flag(std::move(passed));
}

absl::StatusOr<bool> HostDevice::Passed(Event event) { return (*static_cast<Flag*>(event))->load(std::memory_order_acquire); }

void HostDevice::DestroyEvent(Event event) { delete static_cast<Flag*>(event); }

}  // namespace tidetape::collectives
