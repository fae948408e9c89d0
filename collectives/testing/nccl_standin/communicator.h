// One rank's end of a stand-in communicator.
#ifndef TIDETAPE_COLLECTIVES_TESTING_NCCL_STANDIN_COMMUNICATOR_H_
#define TIDETAPE_COLLECTIVES_TESTING_NCCL_STANDIN_COMMUNICATOR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "collectives/device/host_stream.h"
#include "collectives/testing/nccl_standin/shared_state.h"
#include "collectives/testing/nccl_standin/standin.h"
#include "collectives/transports/nccl/nccl_abi.h"

namespace tidetape::collectives::standin {

// Calls other than async_error and Abort come from one thread at a time.
class Communicator {
 public:
  // Joins the others in a thread of its own; async_error is kInProgress until then.
  Communicator(int ranks, int rank, const SharedMemory& shared, const StandinOptions& options);
  // Aborts what is on streams, and waits until it has left them.
  ~Communicator();

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  nccl::Result async_error() const { return async_error_; }
  nccl::Team lsa() const { return {per_node(), rank_ % per_node(), 1}; }
  // Of a rank of the same node; null for others, and where there is no window.
  std::byte* LsaPointer(int lsa_rank) const { return window_bytes_ == 0 ? nullptr : maps_[rank_ - lsa().rank + lsa_rank]; }
  // Of this process's addresses for the multicast; null where there is none.
  std::byte* multimem() const { return multimem_; }
  size_t window_bytes() const { return window_bytes_; }
  bool InWindow(const void* at, size_t bytes) const;

  // In a thread of its own, as above.
  void RegisterWindow(const std::byte* own, const SharedMemory& memory, std::function<void()> done);
  nccl::Result Put(const void* from, size_t bytes, int peer, size_t offset, int signal, HostStream* stream);
  nccl::Result Signal(int peer, int signal, HostStream* stream);
  nccl::Result Wait(const nccl::WaitSignalDesc& wait, HostStream* stream);
  // Copies to the multicast address: to all ranks of the node.
  void CopyToNode(size_t offset, const void* from, size_t bytes);

 private:
  int per_node() const { return options_.ranks_per_node < ranks_ ? options_.ranks_per_node : ranks_; }
  void Enqueue(HostStream* stream, std::function<void()> work);
  void CountPut();
  void InBackground(std::function<void()> work);

  const int ranks_, rank_;
  const StandinOptions options_;
  Shared* shared_ = nullptr;
  int generation_ = 0;
  std::vector<std::byte*> maps_;
  std::byte* multimem_ = nullptr;
  const std::byte* own_ = nullptr;  // where the caller sees its window
  size_t window_bytes_ = 0;
  int puts_ = 0;
  std::vector<std::atomic<int>> in_flight_;      // puts, by peer
  std::vector<std::vector<uint32_t>> expected_;  // signals that earlier waits take, by sender and index
  std::atomic<int> enqueued_ = 0;
  std::atomic<bool> aborted_ = false;
  std::atomic<nccl::Result> async_error_ = nccl::kInProgress;
  std::thread background_;
};

}  // namespace tidetape::collectives::standin

#endif  // TIDETAPE_COLLECTIVES_TESTING_NCCL_STANDIN_COMMUNICATOR_H_
