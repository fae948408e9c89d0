// A transport between GPUs, over NCCL 2.31 or newer.
//
//  - The arena is memory from ncclMemAlloc and one window. Addresses of arenas are the device's: only the device, and CUDA's
//  copies,
//    reach them, and so it is with the memory that PeerArena gives.
//  - Within a node a put is a copy by a copy engine to the peer's mapped arena, then a signal; a small multicast is one copy to the
//    multicast address. Between nodes a put is ncclPutSignal. No SM takes part.
//  - Waiting is done on a stream of its own for each (peer, signal), never on one that sends, and polled from the caller's thread.
//
// NCCL does not say which rank failed, nor may a rank that waits on a GPU be woken. So the group has a control transport, over
// shared memory or TCP, that carries no tensors: through it ranks agree on each step of the start, and learn who is lost.
//
// Errors beyond transport.h's: at the start, FAILED_PRECONDITION where the machine lacks what is needed, with what that is;
// RESOURCE_EXHAUSTED where the arena does not fit; and on all other ranks UNAVAILABLE with the rank that cannot take part and its
// reason. Later, UNAVAILABLE for whatever NCCL reports. All ranks then go on without this transport.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_NCCL_TRANSPORT_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_NCCL_TRANSPORT_H_

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/device/device.h"
#include "collectives/transport.h"
#include "collectives/transports/common/call_check.h"
#include "collectives/transports/common/owner_process.h"
#include "collectives/transports/nccl/inbox.h"
#include "collectives/transports/nccl/nccl_communicator.h"
#include "collectives/transports/nccl/nccl_options.h"
#include "collectives/transports/nccl/outbox.h"
#include "collectives/transports/rendezvous/rendezvous.h"

namespace tidetape::collectives {

class NcclTransport final : public Transport {
 public:
  // Makes the control transport of the same ranks, such as HybridTransport::Join with its options bound.
  using JoinControl = std::function<absl::StatusOr<std::unique_ptr<Transport>>(Store& store, const GroupOptions& options)>;

  // The device must outlive the transport. GPUs have no shared region: INVALID_ARGUMENT where one is asked for.
  static absl::StatusOr<std::unique_ptr<NcclTransport>> Join(Store& store, const GroupOptions& options, const NcclOptions& nccl,
                                                             Device& device, const JoinControl& join_control);

  ~NcclTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return bounds_.size; }
  int signals() const override { return bounds_.signals; }
  absl::Span<std::byte> arena() override { return arena_; }
  absl::Status PutSignal(int peer, absl::Span<const std::byte> source, uint64_t destination_offset, int signal) override;
  absl::Status Signal(int peer, int signal) override;
  absl::Status WaitSignal(int peer, int signal, uint64_t count, absl::Time deadline) override;
  absl::Status Flush(absl::Time deadline) override;
  absl::Status Multicast(absl::Span<const int> peers, absl::Span<const std::byte> source, uint64_t destination_offset,
                         int signal) override;
  absl::Span<const int> LocalPeers() const override { return gpu_->communicator->local_ranks(); }
  absl::Span<std::byte> PeerArena(int peer) override;

 private:
  // All that a forked child must not touch. Destroyed from the last to the first.
  struct Gpu {
    std::unique_ptr<NcclMemory> memory;           // the arena, then the outbox for puts from elsewhere
    std::vector<std::unique_ptr<Inbox>> inboxes;  // by peer and signal
    std::unique_ptr<Outbox> node, network;
    std::unique_ptr<NcclCommunicator> communicator;
  };

  NcclTransport(const GroupOptions& options, const NcclOptions& nccl, Device& device);

  absl::Status JoinAll(Store& store, const GroupOptions& options, const NcclLibrary& library, absl::Time deadline);
  absl::Status JoinCommunicator(Store& store, const GroupOptions& options, const NcclLibrary& library, absl::Time deadline);
  absl::Status ClearArena(absl::Time deadline);
  void Drain(absl::Time deadline);

  // Whether sending to the peer, or waiting for it, makes sense.
  absl::Status CheckPeer(int peer);
  absl::Status CheckGroup() { return CheckPeer(rank_); }
  std::byte* MappedArena(int peer) const;  // null where the peer is on another node
  bool InArena(absl::Span<const std::byte> bytes) const;
  bool ReachesNode(absl::Span<const int> local_peers, absl::Span<const std::byte> source, uint64_t offset) const;
  // These hold sending_.
  absl::Status PutInNode(int peer, absl::Span<const std::byte> source, uint64_t offset, int signal);
  absl::Status PutAcross(int peer, absl::Span<const std::byte> source, uint64_t offset, int signal);
  absl::Status PutToNode(absl::Span<const int> local_peers, absl::Span<const std::byte> source, uint64_t offset, int signal);
  absl::Status Admit(Outbox& outbox, int peer);

  const OwnerProcess owner_;
  const int rank_;
  const NcclOptions options_;
  const CallBounds bounds_;
  Device& device_;
  std::unique_ptr<Transport> control_;
  std::unique_ptr<Gpu> gpu_ = std::make_unique<Gpu>();
  absl::Span<std::byte> arena_, outbox_memory_;
  std::mutex sending_;  // keeps the order of what one thread sends
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_NCCL_TRANSPORT_H_
