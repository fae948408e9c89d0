// Shared memory within a host, TCP between hosts, as one transport over one arena.
//
// The shared region is shared by the ranks of one host. A put from another host into it reaches all ranks of the receiver's host at
// once: send such bytes once a host, and signal the others.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_HYBRID_HYBRID_TRANSPORT_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_HYBRID_HYBRID_TRANSPORT_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "collectives/transport.h"
#include "collectives/transports/rendezvous/rendezvous.h"
#include "collectives/transports/shm/shm_transport.h"
#include "collectives/transports/tcp/tcp_transport.h"

namespace tidetape::collectives {

class HybridTransport final : public Transport {
 public:
  // Meets the others through the store and connects: ranks of equal HostId by shared memory, all others by TCP. An empty address in
  // `tcp` will do where all ranks are on one host.
  static absl::StatusOr<std::unique_ptr<HybridTransport>> Join(Store& store, const GroupOptions& options, const ShmOptions& shm,
                                                               const TcpOptions& tcp);

  int rank() const override { return shm_->rank(); }
  int size() const override { return shm_->size(); }
  int signals() const override { return shm_->signals(); }
  absl::Span<std::byte> arena() override { return shm_->arena(); }
  absl::Status PutSignal(int peer, absl::Span<const std::byte> source, uint64_t destination_offset, int signal) override;
  absl::Status Signal(int peer, int signal) override;
  absl::Status WaitSignal(int peer, int signal, uint64_t count, absl::Time deadline) override;
  absl::Status Flush(absl::Time deadline) override;
  absl::Status Multicast(absl::Span<const int> peers, absl::Span<const std::byte> source, uint64_t destination_offset,
                         int signal) override;
  absl::Span<const int> LocalPeers() const override { return shm_->LocalPeers(); }
  absl::Span<std::byte> PeerArena(int peer) override { return shm_->PeerArena(peer); }

  // Of what goes to other hosts.
  void SetPacing(const Pacing& pacing);
  // How much memory the own arena takes.
  ShmUsage usage() const { return shm_->usage(); }

 private:
  HybridTransport(std::unique_ptr<ShmTransport> shm, std::unique_ptr<TcpTransport> tcp)
      : shm_(std::move(shm)), tcp_(std::move(tcp)) {}

  // Whichever reaches the peer; the one that refuses it where none does.
  Transport& Towards(int peer);

  std::unique_ptr<ShmTransport> shm_;
  // Null where all ranks are on one host. After shm_, so destroyed before the arena that it writes to.
  std::unique_ptr<TcpTransport> tcp_;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_HYBRID_HYBRID_TRANSPORT_H_
