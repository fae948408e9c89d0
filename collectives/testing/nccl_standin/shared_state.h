// What the processes of one stand-in communicator share.
#ifndef TIDETAPE_COLLECTIVES_TESTING_NCCL_STANDIN_SHARED_STATE_H_
#define TIDETAPE_COLLECTIVES_TESTING_NCCL_STANDIN_SHARED_STATE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tidetape::collectives::standin {

inline constexpr int kMaxRanks = 16;
inline constexpr int kMaxSignals = 256;

// Memory of some process, for another to map.
struct SharedMemory {
  int pid = 0;
  int file = -1;
  size_t bytes = 0;

  // Anonymous, of this process. Null where there is none.
  static void* Make(size_t bytes, SharedMemory* memory);
  void* Map() const;
};

// In memory that all ranks map; zeroed at the start.
struct Shared {
  std::atomic<int> arrived;  // of all barriers so far
  SharedMemory windows[kMaxRanks];
  std::atomic<uint32_t> signals[kMaxRanks][kMaxRanks][kMaxSignals];  // by receiver, sender, index; waiters sleep on them

  // Waits for all ranks, and for nothing once `aborted` is set; false then.
  bool Barrier(int ranks, int* generation, const std::atomic<bool>& aborted);

  void Raise(int receiver, int sender, int signal);
  // Until so many signals have come in all, or `aborted` is set and WakeAll was called.
  void Await(int receiver, int sender, int signal, uint32_t count, const std::atomic<bool>& aborted);
  void WakeAll(int receiver);
};

}  // namespace tidetape::collectives::standin

#endif  // TIDETAPE_COLLECTIVES_TESTING_NCCL_STANDIN_SHARED_STATE_H_
