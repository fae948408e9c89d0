// A transport between the ranks of one host, over shared memory: every rank maps every other rank's arena, a put is a copy by the
// sender's thread straight to its final place, and a signal is an atomic counter in the receiver's memory.
//
// The shared region is a range of the arena that is backed by the same pages on all ranks of the host: what one rank writes there,
// all of them have. A multicast into it is one copy, and none where the source is already that place. It suits bytes that all ranks
// hold equally and nobody changes, such as gathered parameters. In return a slot there belongs to all ranks of the host at once: it
// may be written again only after all of them have finished reading.
//
// The memory has no name (see anonymous_file.h), so nothing is left behind when ranks are killed.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_SHM_SHM_TRANSPORT_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_SHM_SHM_TRANSPORT_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/transport.h"
#include "collectives/transports/common/call_check.h"
#include "collectives/transports/common/group_health.h"
#include "collectives/transports/common/owner_process.h"
#include "collectives/transports/rendezvous/rendezvous.h"
#include "collectives/transports/shm/introduction.h"
#include "collectives/transports/shm/process_watch.h"
#include "collectives/transports/shm/rank_memory.h"

namespace tidetape::collectives {

struct ShmOptions {
  // A tmpfs. Its size bounds all arenas of the host together.
  std::string folder = "/dev/shm";
  // How long a wait spins before it sleeps. By default 20 us where the process may use as many cores as the host has ranks, else
  // not at all.
  std::optional<absl::Duration> spin;
};

class ShmTransport final : public Transport {
 public:
  // What a rank prepares before it meets the others: memory that is there for certain, and a socket. RESOURCE_EXHAUSTED where the
  // folder is full.
  struct Prepared {
    UniqueFd memory;
    LocalListener listener;
  };
  static absl::StatusOr<Prepared> Prepare(const GroupOptions& options, const ShmOptions& shm);

  // Connects the ranks of `roster` that share this rank's host id. Calls that name other ranks are INVALID_ARGUMENT.
  static absl::StatusOr<std::unique_ptr<ShmTransport>> Connect(Prepared prepared, const GroupOptions& options,
                                                               const ShmOptions& shm, const Roster& roster,
                                                               std::shared_ptr<GroupHealth> health, absl::Time deadline);

  // All of it, for groups of one host: prepares, meets the others through the store, connects.
  static absl::StatusOr<std::unique_ptr<ShmTransport>> Join(Store& store, const GroupOptions& options, const ShmOptions& shm);

  ~ShmTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return bounds_.size; }
  int signals() const override { return bounds_.signals; }
  absl::Span<std::byte> arena() override { return own().arena(); }
  absl::Status PutSignal(int peer, absl::Span<const std::byte> source, uint64_t destination_offset, int signal) override;
  absl::Status Signal(int peer, int signal) override;
  absl::Status WaitSignal(int peer, int signal, uint64_t count, absl::Time deadline) override;
  absl::Status Flush(absl::Time deadline) override;
  absl::Status Multicast(absl::Span<const int> peers, absl::Span<const std::byte> source, uint64_t destination_offset,
                         int signal) override;
  absl::Span<const int> LocalPeers() const override { return local_ranks_; }
  absl::Span<std::byte> PeerArena(int peer) override;

  // How much memory the own arena takes.
  ShmUsage usage() const { return own().usage(); }

 private:
  ShmTransport(const GroupOptions& options, const ShmOptions& shm, std::vector<int> local_ranks,
               std::shared_ptr<GroupHealth> health);

  absl::Status MapAll(int own_file, int shared_file, const std::vector<Neighbour>& neighbours, const GroupOptions& options);
  RankMemory& own() const { return *memories_[static_cast<size_t>(rank_)]; }
  // Whether sending to the peer, or waiting for it, makes sense.
  absl::Status CheckPeer(int peer) const;
  bool InSharedRegion(uint64_t offset, uint64_t bytes) const;
  void Place(int peer, absl::Span<const std::byte> source, uint64_t offset);

  const OwnerProcess owner_;
  const int rank_;
  const CallBounds bounds_;
  const SharedRegion shared_region_;
  const std::vector<int> local_ranks_;
  const absl::Duration spin_;
  const std::shared_ptr<GroupHealth> health_;
  std::vector<std::unique_ptr<RankMemory>> memories_;  // by rank; null for ranks of other hosts
  std::unique_ptr<ProcessWatch> watch_;
  int watcher_ = -1;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_SHM_SHM_TRANSPORT_H_
