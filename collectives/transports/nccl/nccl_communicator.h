// One NCCL communicator with the one window that the arena is, and what NCCL says about who reaches whom.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_NCCL_COMMUNICATOR_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_NCCL_COMMUNICATOR_H_

#include <memory>
#include <mutex>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "collectives/transports/nccl/nccl_library.h"

namespace tidetape::collectives {

// Memory from ncclMemAlloc.
class NcclMemory {
 public:
  static absl::StatusOr<NcclMemory> Allocate(const NcclLibrary& library, size_t bytes);
  NcclMemory(NcclMemory&& other) noexcept;
  NcclMemory& operator=(NcclMemory&&) = delete;
  ~NcclMemory();

  absl::Span<std::byte> bytes() const { return bytes_; }

 private:
  NcclMemory(const NcclLibrary& library, absl::Span<std::byte> bytes) : library_(library), bytes_(bytes) {}

  NcclLibrary library_;
  absl::Span<std::byte> bytes_;
};

// Thread-safe: NCCL's calls on one communicator are made one at a time. Signals have context 0.
class NcclCommunicator {
 public:
  // Asked while waiting for other ranks; what is not OK ends the wait.
  using Failure = absl::FunctionRef<absl::Status()>;

  // All ranks, each with the id that one of them drew. `signals` indices for each peer. No SM is used for what it moves.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Join(const NcclLibrary& library, const nccl::UniqueId& id, int size,
                                                                int rank, int signals, absl::Time deadline, Failure failure);
  // Takes back whatever is under way; waits for no other rank. Memory that is registered must live until then.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // All ranks, once, with as many bytes each. FAILED_PRECONDITION where NCCL gives no window.
  absl::Status Register(absl::Span<std::byte> memory, absl::Time deadline, Failure failure);

  // Ranks of the node, ascending, and their memory as it is mapped here. After Register.
  absl::Span<const int> local_ranks() const { return local_ranks_; }
  absl::Span<std::byte* const> local_memory() const { return local_memory_; }
  // What is written here arrives on all ranks of the node, at the same offset; null where the hardware has no multicast.
  std::byte* multicast() const { return multicast_; }

  // Enqueue on `stream`. `source` must lie in the registered memory.
  absl::Status Put(absl::Span<const std::byte> source, int peer, size_t offset, int signal, nccl::Stream stream);
  absl::Status Signal(int peer, int signal, nccl::Stream stream);
  absl::Status WaitOne(int peer, int signal, nccl::Stream stream);

  // OK unless NCCL has noticed a failure.
  absl::Status CheckAsync();

 private:
  NcclCommunicator(const NcclLibrary& library, int rank) : library_(library), rank_(rank) {}
  absl::Status Settle(absl::string_view call, nccl::Result result, absl::Time deadline, Failure failure);
  absl::Status AskAboutNode();

  const NcclLibrary library_;
  const int rank_;
  std::mutex mutex_;  // held in calls on comm_
  nccl::Comm comm_ = nullptr;
  nccl::Window window_ = nullptr;
  std::vector<int> local_ranks_;
  std::vector<std::byte*> local_memory_;
  std::byte* multicast_ = nullptr;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_NCCL_COMMUNICATOR_H_
