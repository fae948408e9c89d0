#include "collectives/testing/nccl_standin/shared_state.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <ctime>
#include <thread>

namespace tidetape::collectives::standin {

void* SharedMemory::Make(size_t bytes, SharedMemory* memory) {
  const int file = memfd_create("nccl-standin", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return nullptr;
  *memory = {getpid(), file, bytes};
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return at == MAP_FAILED ? nullptr : at;
}

void* SharedMemory::Map() const {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(file);
  const int opened = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) return nullptr;
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
  close(opened);
  return at == MAP_FAILED ? nullptr : at;
}

bool Shared::Barrier(int ranks, int* generation, const std::atomic<bool>& aborted) {
  const int target = ++*generation * ranks;
  arrived.fetch_add(1);
  while (arrived.load() < target) {
    if (aborted) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

void Shared::Raise(int receiver, int sender, int signal) {
  std::atomic<uint32_t>& counter = signals[receiver][sender][signal];
  counter.fetch_add(1);
  syscall(SYS_futex, &counter, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Shared::Await(int receiver, int sender, int signal, uint32_t count, const std::atomic<bool>& aborted) {
  std::atomic<uint32_t>& counter = signals[receiver][sender][signal];
  // Between looking at `aborted` and sleeping a wake may be lost.
  const timespec at_most = {0, 300'000'000};
  for (uint32_t come = counter.load(); come < count && !aborted; come = counter.load()) {
    syscall(SYS_futex, &counter, FUTEX_WAIT, come, &at_most, nullptr, 0);
  }
}

void Shared::WakeAll(int receiver) {
  for (auto& of_sender : signals[receiver]) {
    for (std::atomic<uint32_t>& counter : of_sender) syscall(SYS_futex, &counter, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

}  // namespace tidetape::collectives::standin
