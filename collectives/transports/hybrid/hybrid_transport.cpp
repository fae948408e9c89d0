#include "collectives/transports/hybrid/hybrid_transport.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/transports/common/group_health.h"

namespace tidetape::collectives {
namespace {

// The same on all ranks: whether all can reach each other.
absl::Status CheckAddresses(const Roster& roster) {
  bool several_hosts = false;
  for (const Member& member : roster.members) several_hosts = several_hosts || member.host_id != roster.members[0].host_id;
  for (size_t rank = 0; several_hosts && rank < roster.members.size(); ++rank) {
    if (!roster.members[rank].tcp_address.empty()) continue;
    return absl::FailedPreconditionError(absl::StrCat("the ranks are on several hosts, and rank ", rank,
                                                      " has no TCP address; give each rank an address of its host"));
  }
  return absl::OkStatus();
}

std::vector<int> RemoteRanks(const Roster& roster, int rank) {
  std::vector<int> remote;
  for (size_t other = 0; other < roster.members.size(); ++other) {
    if (roster.members[other].host_id != roster.members[static_cast<size_t>(rank)].host_id)
      remote.push_back(static_cast<int>(other));
  }
  return remote;
}

struct Prepared {
  std::string host;
  ShmTransport::Prepared shm;
  TcpTransport::Prepared tcp;
};

absl::StatusOr<Prepared> Prepare(const GroupOptions& options, const ShmOptions& shm, const TcpOptions& tcp) {
  absl::StatusOr<std::string> host = HostId();
  if (!host.ok()) return host.status();
  absl::StatusOr<ShmTransport::Prepared> for_shm = ShmTransport::Prepare(options, shm);
  if (!for_shm.ok()) return for_shm.status();
  Prepared prepared{*std::move(host), *std::move(for_shm), {}};
  if (!tcp.address.empty()) {
    absl::StatusOr<TcpTransport::Prepared> for_tcp = TcpTransport::Prepare(tcp);
    if (!for_tcp.ok()) return for_tcp.status();
    prepared.tcp = *std::move(for_tcp);
  }
  return prepared;
}

}  // namespace

absl::StatusOr<std::unique_ptr<HybridTransport>> HybridTransport::Join(Store& store, const GroupOptions& options,
                                                                       const ShmOptions& shm, const TcpOptions& tcp) {
  if (absl::Status status = ValidateOptions(options); !status.ok()) return status;
  const absl::Time deadline = absl::Now() + options.join_timeout;
  absl::StatusOr<Prepared> prepared = Prepare(options, shm, tcp);
  if (!prepared.ok()) {
    Decline(store, options, prepared.status());
    return prepared.status();
  }
  const Member self = {prepared->host, prepared->shm.listener.address(), prepared->tcp.address};
  absl::StatusOr<Roster> roster = Meet(store, options, self, deadline);
  if (!roster.ok()) return roster.status();
  if (absl::Status status = CheckAddresses(*roster); !status.ok()) return status;

  auto health = std::make_shared<GroupHealth>(options.size);
  absl::StatusOr<std::unique_ptr<ShmTransport>> local =
      ShmTransport::Connect(std::move(prepared->shm), options, shm, *roster, health, deadline);
  if (!local.ok()) return local.status();
  std::unique_ptr<TcpTransport> remote;
  if (const std::vector<int> ranks = RemoteRanks(*roster, options.rank); !ranks.empty()) {
    absl::StatusOr<std::unique_ptr<TcpTransport>> connected =
        TcpTransport::Connect(std::move(prepared->tcp), options, tcp, *roster, ranks, (*local)->arena(), health, deadline);
    if (!connected.ok()) return connected.status();
    remote = *std::move(connected);
  }
  return std::unique_ptr<HybridTransport>(new HybridTransport(*std::move(local), std::move(remote)));
}

Transport& HybridTransport::Towards(int peer) {
  if (tcp_ == nullptr || !shm_->PeerArena(peer).empty()) return *shm_;
  return *tcp_;
}

absl::Status HybridTransport::PutSignal(int peer, absl::Span<const std::byte> source, uint64_t destination_offset, int signal) {
  return Towards(peer).PutSignal(peer, source, destination_offset, signal);
}

absl::Status HybridTransport::Signal(int peer, int signal) { return Towards(peer).Signal(peer, signal); }

absl::Status HybridTransport::WaitSignal(int peer, int signal, uint64_t count, absl::Time deadline) {
  return Towards(peer).WaitSignal(peer, signal, count, deadline);
}

absl::Status HybridTransport::Flush(absl::Time deadline) { return tcp_ == nullptr ? absl::OkStatus() : tcp_->Flush(deadline); }

absl::Status HybridTransport::Multicast(absl::Span<const int> peers, absl::Span<const std::byte> source,
                                        uint64_t destination_offset, int signal) {
  // The network first: it goes on while this thread copies.
  std::vector<int> local;
  for (int peer : peers) {
    if (&Towards(peer) == shm_.get()) {
      local.push_back(peer);
    } else if (absl::Status status = tcp_->PutSignal(peer, source, destination_offset, signal); !status.ok()) {
      return status;
    }
  }
  return shm_->Multicast(local, source, destination_offset, signal);
}

void HybridTransport::SetPacing(const Pacing& pacing) {
  if (tcp_ != nullptr) tcp_->SetPacing(pacing);
}

}  // namespace tidetape::collectives
