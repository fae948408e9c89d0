#include "collectives/transports/tcp/tcp_transport.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/transports/tcp/introduction.h"
#include "collectives/transports/tcp/socket.h"

namespace tidetape::collectives {

absl::StatusOr<TcpTransport::Prepared> TcpTransport::Prepare(const TcpOptions& tcp) {
  absl::StatusOr<UniqueFd> listener = ListenOn({tcp.address, 0});
  if (!listener.ok()) return listener.status();
  absl::StatusOr<Endpoint> endpoint = LocalEndpoint(listener->get());
  if (!endpoint.ok()) return endpoint.status();
  return Prepared{*std::move(listener), ToText(*endpoint)};
}

absl::StatusOr<std::unique_ptr<TcpTransport>> TcpTransport::Connect(Prepared prepared, const GroupOptions& options,
                                                                    const TcpOptions& tcp, const Roster& roster,
                                                                    absl::Span<const int> peers, absl::Span<std::byte> arena,
                                                                    std::shared_ptr<GroupHealth> health, absl::Time deadline) {
  absl::StatusOr<std::vector<RemotePeer>> connected = ConnectAll(prepared.listener.get(), options.rank, roster, peers, deadline);
  if (!connected.ok()) return connected.status();
  absl::StatusOr<Pages> board = Pages::Map(SignalBoard::BytesFor(options.size, options.signals));
  if (!board.ok()) return board.status();
  absl::StatusOr<std::unique_ptr<ProgressLoop>> loop = ProgressLoop::Make();
  if (!loop.ok()) return loop.status();

  std::unique_ptr<TcpTransport> transport(
      new TcpTransport(options, tcp, arena, *std::move(board), std::move(health), *std::move(loop)));
  std::vector<TcpConnection*> connections;
  for (RemotePeer& peer : *connected) {
    if (absl::Status status = PrepareConnection(peer.socket.get(), tcp.dead_after); !status.ok()) return status;
    auto connection =
        std::make_unique<TcpConnection>(peer.rank, std::move(peer.socket), tcp,
                                        TcpConnection::Shared{arena, options.signals, &transport->board_, transport->health_.get(),
                                                              &transport->changed_, transport->loop_->epoll()});
    if (absl::Status status = connection->Watch(); !status.ok()) return status;
    connections.push_back(connection.get());
    transport->connections_[static_cast<size_t>(peer.rank)] = std::move(connection);
  }
  transport->loop_->Start(std::move(connections));
  return transport;
}

absl::StatusOr<std::unique_ptr<TcpTransport>> TcpTransport::Join(Store& store, const GroupOptions& options, const TcpOptions& tcp) {
  if (absl::Status status = ValidateOptions(options); !status.ok()) return status;
  const absl::Time deadline = absl::Now() + options.join_timeout;
  absl::StatusOr<Pages> arena = Pages::Map(options.arena_bytes);
  absl::StatusOr<Prepared> prepared = Prepare(tcp);
  if (absl::Status status = arena.ok() ? prepared.status() : arena.status(); !status.ok()) {
    Decline(store, options, status);
    return status;
  }
  absl::StatusOr<Roster> roster = Meet(store, options, {"", "", prepared->address}, deadline);
  if (!roster.ok()) return roster.status();
  std::vector<int> peers;
  for (int rank = 0; rank < options.size; ++rank) {
    if (rank != options.rank) peers.push_back(rank);
  }
  auto transport = Connect(*std::move(prepared), options, tcp, *roster, peers, arena->span(),
                           std::make_shared<GroupHealth>(options.size), deadline);
  if (transport.ok()) (*transport)->own_arena_ = *std::move(arena);
  return transport;
}

TcpTransport::TcpTransport(const GroupOptions& options, const TcpOptions& tcp, absl::Span<std::byte> arena, Pages board,
                           std::shared_ptr<GroupHealth> health, std::unique_ptr<ProgressLoop> loop)
    : rank_(options.rank),
      bounds_{options.size, options.signals, options.arena_bytes},
      queue_timeout_(tcp.queue_timeout),
      linger_(tcp.linger),
      queue_puts_(tcp.queue_puts),
      arena_(arena),
      health_(std::move(health)),
      board_memory_(std::move(board)),
      board_(board_memory_.span(), options.size, options.signals, false),
      connections_(static_cast<size_t>(options.size)),
      loop_(std::move(loop)),
      watcher_(health_->AddWatcher([this] {
        board_.Ring();
        changed_.Notify();
      })) {}

TcpTransport::~TcpTransport() {
  if (!owner_.IsHere()) return;
  for (const auto& connection : connections_) {
    if (connection != nullptr) connection->SayGoodbye(health_->lost_rank());
  }
  loop_->Wake();
  const absl::Time deadline = absl::Now() + linger_;
  const auto finished = [&] {
    return std::all_of(connections_.begin(), connections_.end(), [](const auto& c) { return c == nullptr || c->finished(); });
  };
  while (true) {
    const uint64_t key = changed_.Prepare();
    if (finished() || !changed_.Wait(key, deadline)) break;
  }
  // The thread ends first: it uses all the rest.
  loop_.reset();
  health_->RemoveWatcher(watcher_);
}

absl::Status TcpTransport::CheckPeer(int peer) const {
  if (peer != rank_ && connections_[static_cast<size_t>(peer)] == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", peer, " is not connected by TCP"));
  }
  return health_->Check(peer);
}

absl::Status TcpTransport::Send(int peer, absl::Span<const std::byte> source, uint64_t offset, int signal) {
  if (absl::Status status = CheckPeer(peer); !status.ok()) return status;
  if (peer == rank_) {
    if (!source.empty()) std::memmove(arena_.data() + offset, source.data(), source.size());
    board_.Raise(rank_, signal);
    return absl::OkStatus();
  }
  TcpConnection& connection = *connections_[static_cast<size_t>(peer)];
  absl::Time deadline = absl::InfinitePast();
  while (true) {
    const uint64_t key = changed_.Prepare();
    bool needs_progress = false;
    switch (connection.Push(source, offset, signal, &needs_progress)) {
      case TcpConnection::Pushed::kYes:
        if (needs_progress) loop_->Wake();
        return absl::OkStatus();
      case TcpConnection::Pushed::kClosed:
        break;
      case TcpConnection::Pushed::kFull:
        if (deadline == absl::InfinitePast()) deadline = absl::Now() + queue_timeout_;
        if (!changed_.Wait(key, deadline)) {
          return absl::DeadlineExceededError(absl::StrCat("the queue of ", queue_puts_, " puts to rank ", peer, " stayed full for ",
                                                          absl::FormatDuration(queue_timeout_), ": the rank or its link is stuck"));
        }
        break;
    }
    if (absl::Status status = health_->Check(peer); !status.ok()) return status;
  }
}

absl::Status TcpTransport::PutSignal(int peer, absl::Span<const std::byte> source, uint64_t destination_offset, int signal) {
  absl::Status status = CheckPut(bounds_, peer, destination_offset, source.size(), signal);
  if (!status.ok()) return status;
  status = Send(peer, source, destination_offset, signal);
  return status.ok() ? status : InCall(status, PutName(peer, destination_offset, source.size(), signal));
}

absl::Status TcpTransport::Signal(int peer, int signal) {
  absl::Status status = CheckSignal(bounds_, "Signal", peer, signal);
  if (!status.ok()) return status;
  status = Send(peer, {}, 0, signal);
  return status.ok() ? status : InCall(status, SignalName("Signal", peer, signal));
}

absl::Status TcpTransport::WaitSignal(int peer, int signal, uint64_t count, absl::Time deadline) {
  absl::Status status = CheckSignal(bounds_, "WaitSignal", peer, signal);
  if (!status.ok()) return status;
  status = board_.Wait(peer, signal, count, deadline, absl::ZeroDuration(), [&] { return CheckPeer(peer); });
  return status.ok() ? status : InCall(status, SignalName("WaitSignal", peer, signal));
}

absl::Status TcpTransport::Flush(absl::Time deadline) {
  for (const auto& connection : connections_) {
    if (connection == nullptr) continue;
    const uint64_t number = connection->pushed();
    while (true) {
      const uint64_t key = changed_.Prepare();
      if (connection->HasTaken(number)) break;
      if (absl::Status status = health_->CheckGroup(); !status.ok()) return InCall(status, "Flush");
      if (!changed_.Wait(key, deadline)) {
        return absl::DeadlineExceededError(
            absl::StrCat("Flush: puts to rank ", connection->peer(), " still waited to be sent at the deadline"));
      }
    }
  }
  return absl::OkStatus();
}

void TcpTransport::SetPacing(const Pacing& pacing) {
  for (const auto& connection : connections_) {
    if (connection != nullptr) connection->SetPacing(pacing);
  }
  loop_->Wake();
}

}  // namespace tidetape::collectives
