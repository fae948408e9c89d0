#include "agent/tape/host_store.h"

#include <ATen/EmptyTensor.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace tidetape::agent {
namespace {

using StorageRef = c10::intrusive_ptr<c10::StorageImpl>;

// Extents are taken in multiples of this, so that one that comes free fits the next value of about the same size.
constexpr int64_t kExtentBytes = 1 << 16;

int64_t ExtentBytes(int64_t bytes) { return (bytes + kExtentBytes - 1) / kExtentBytes * kExtentBytes; }

// One file for the process; extents are reused. Thread-safe.
class HostFile {
 public:
  static HostFile& Get() {
    static auto* file = new HostFile();  // copies may outlive static destruction
    return *file;
  }

  // Where `bytes` may be written, or -1 without a file or room.
  int64_t Take(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (descriptor_ < 0 || bytes > limit_ - used_) return -1;
    used_ += bytes;
    const auto hole = free_.find(ExtentBytes(bytes));
    if (hole == free_.end()) return std::exchange(end_, end_ + ExtentBytes(bytes));
    const int64_t place = hole->second;
    free_.erase(hole);
    return place;
  }

  void Return(int64_t place, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    used_ -= bytes;
    free_.emplace(ExtentBytes(bytes), place);
  }

  void SetLimit(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    limit_ = bytes;
  }

  bool Write(const char* data, int64_t bytes, int64_t place) {
    while (bytes > 0) {
      const ssize_t written = pwrite(descriptor_, data, static_cast<size_t>(bytes), place);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      data += written, bytes -= written, place += written;
    }
    return true;
  }

  bool Read(char* data, int64_t bytes, int64_t place) {
    while (bytes > 0) {
      const ssize_t read = pread(descriptor_, data, static_cast<size_t>(bytes), place);
      if (read < 0 && errno == EINTR) continue;
      if (read <= 0) return false;
      data += read, bytes -= read, place += read;
    }
    return true;
  }

 private:
  HostFile() {
    const char* directory = std::getenv("TIDETAPE_HOST_DIR");
    if (directory == nullptr) directory = std::getenv("TMPDIR");
    if (directory == nullptr) directory = "/tmp";
    descriptor_ = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  }

  int descriptor_ = -1;
  std::mutex mutex_;
  std::multimap<int64_t, int64_t> free_;  // bytes of the extent -> place
  int64_t end_ = 0;
  int64_t used_ = 0;
  int64_t limit_ = INT64_MAX;
};

StorageRef Empty(int64_t bytes, c10::Device device) {
  const at::TensorBase tensor = at::detail::empty_cpu({bytes}, at::TensorOptions().dtype(at::kByte).device(device));
  return StorageRef::reclaim_copy(tensor.storage().unsafeGetStorageImpl());
}

class FileCopy final : public HostCopy {
 public:
  FileCopy(int64_t place, int64_t bytes, c10::Device device) : place_(place), bytes_(bytes), device_(device) {}
  ~FileCopy() override {
    if (reading_.valid()) reading_.wait();
    HostFile::Get().Return(place_, bytes_);
  }

  void Prefetch() override {
    if (reading_.valid()) return;
    storage_ = Empty(bytes_, device_);
    reading_ = std::async(std::launch::async, [place = place_, bytes = bytes_, to = static_cast<char*>(storage_->mutable_data())] {
      return HostFile::Get().Read(to, bytes, place);
    });
  }

  StorageRef Get() override {
    TORCH_CHECK(reading_.valid() && reading_.get(), "tidetape: a moved value of ", bytes_,
                " bytes could not be read back; check the disk of TIDETAPE_HOST_DIR");
    return std::move(storage_);
  }

 private:
  const int64_t place_;
  const int64_t bytes_;
  const c10::Device device_;
  StorageRef storage_;
  std::future<bool> reading_;
};

}  // namespace

std::unique_ptr<HostCopy> MoveToHost(const StorageRef& storage) {
  if (storage->device_type() != c10::DeviceType::CPU) return nullptr;
  const auto bytes = static_cast<int64_t>(storage->nbytes());
  HostFile& file = HostFile::Get();
  const int64_t place = file.Take(bytes);
  if (place < 0) return nullptr;
  if (!file.Write(static_cast<const char*>(storage->data()), bytes, place)) {
    file.Return(place, bytes);
    return nullptr;
  }
  return std::make_unique<FileCopy>(place, bytes, storage->device());
}

void LimitHostBytes(int64_t bytes) { HostFile::Get().SetLimit(bytes); }

double MeasureHostBandwidth() {
  constexpr int64_t kBytes = 8 << 20;
  constexpr size_t kRounds = 5;
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  const StorageRef storage = Empty(kBytes, c10::Device(c10::DeviceType::CPU));
  std::memset(storage->mutable_data(), 1, kBytes);
  for (size_t round = 0; round <= kRounds; ++round) {
    const Clock::time_point start = Clock::now();
    const std::unique_ptr<HostCopy> copy = MoveToHost(storage);
    if (copy == nullptr) return 0;
    copy->Prefetch();
    copy->Get();
    if (round > 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());  // the first one makes the file
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRounds / 2, seconds.end());
  return 2.0 * kBytes / seconds[kRounds / 2];
}

}  // namespace tidetape::agent
