// A transport over TCP, for ranks on different hosts: one connection for each pair, and one progress thread a rank, which sends
// queued puts and places what arrives straight into the arena. Receiving needs no queue, so no rank waits for another's program to
// read.
//
// Flush means that the kernel has taken the bytes. Waits are for the peers' signals, deadlines and the group's health.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_TCP_TRANSPORT_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_TCP_TRANSPORT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/transport.h"
#include "collectives/transports/common/call_check.h"
#include "collectives/transports/common/group_health.h"
#include "collectives/transports/common/owner_process.h"
#include "collectives/transports/common/signal_board.h"
#include "collectives/transports/common/unique_fd.h"
#include "collectives/transports/rendezvous/rendezvous.h"
#include "collectives/transports/tcp/event_count.h"
#include "collectives/transports/tcp/pages.h"
#include "collectives/transports/tcp/progress_loop.h"
#include "collectives/transports/tcp/tcp_connection.h"
#include "collectives/transports/tcp/tcp_options.h"

namespace tidetape::collectives {

class TcpTransport final : public Transport {
 public:
  // What a rank prepares before it meets the others.
  struct Prepared {
    UniqueFd listener;
    // As Member::tcp_address.
    std::string address;
  };
  static absl::StatusOr<Prepared> Prepare(const TcpOptions& tcp);

  // Connects this rank with `peers` (ascending, without the own rank); calls that name other ranks, but for the own, are
  // INVALID_ARGUMENT. `arena` is borrowed.
  static absl::StatusOr<std::unique_ptr<TcpTransport>> Connect(Prepared prepared, const GroupOptions& options,
                                                               const TcpOptions& tcp, const Roster& roster,
                                                               absl::Span<const int> peers, absl::Span<std::byte> arena,
                                                               std::shared_ptr<GroupHealth> health, absl::Time deadline);

  // All of it, for any hosts, with an arena of its own: prepares, meets the others through the store, connects.
  static absl::StatusOr<std::unique_ptr<TcpTransport>> Join(Store& store, const GroupOptions& options, const TcpOptions& tcp);

  ~TcpTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return bounds_.size; }
  int signals() const override { return bounds_.signals; }
  absl::Span<std::byte> arena() override { return arena_; }
  absl::Status PutSignal(int peer, absl::Span<const std::byte> source, uint64_t destination_offset, int signal) override;
  absl::Status Signal(int peer, int signal) override;
  absl::Status WaitSignal(int peer, int signal, uint64_t count, absl::Time deadline) override;
  absl::Status Flush(absl::Time deadline) override;
  absl::Span<const int> LocalPeers() const override { return {&rank_, 1}; }
  absl::Span<std::byte> PeerArena(int peer) override { return peer == rank_ ? arena_ : absl::Span<std::byte>(); }

  // From the next chunk on. Any thread.
  void SetPacing(const Pacing& pacing);

 private:
  TcpTransport(const GroupOptions& options, const TcpOptions& tcp, absl::Span<std::byte> arena, Pages board,
               std::shared_ptr<GroupHealth> health, std::unique_ptr<ProgressLoop> loop);

  absl::Status CheckPeer(int peer) const;
  // A put whose arguments are right, without the call's name in errors.
  absl::Status Send(int peer, absl::Span<const std::byte> source, uint64_t offset, int signal);

  const OwnerProcess owner_;
  const int rank_;
  const CallBounds bounds_;
  const absl::Duration queue_timeout_;
  const absl::Duration linger_;
  const size_t queue_puts_;
  Pages own_arena_;  // empty where the arena is borrowed
  const absl::Span<std::byte> arena_;
  const std::shared_ptr<GroupHealth> health_;
  Pages board_memory_;
  SignalBoard board_;
  EventCount changed_;
  std::vector<std::unique_ptr<TcpConnection>> connections_;  // by rank; null for those without
  std::unique_ptr<ProgressLoop> loop_;
  int watcher_ = -1;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_TCP_TRANSPORT_H_
