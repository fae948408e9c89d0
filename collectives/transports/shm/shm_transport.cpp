#include "collectives/transports/shm/shm_transport.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace tidetape::collectives {
namespace {

absl::Duration DefaultSpin(size_t local_ranks) {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return absl::ZeroDuration();
  return static_cast<size_t>(CPU_COUNT(&cores)) >= local_ranks ? absl::Microseconds(20) : absl::ZeroDuration();
}

absl::StatusOr<UniqueFd> OwnPidfd() {
  // glibc before 2.36 has no wrapper.
  UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (!pidfd) {
    return absl::FailedPreconditionError(absl::StrCat("pidfd_open: ", std::strerror(errno), "; Linux 5.3 or newer is needed"));
  }
  return pidfd;
}

}  // namespace

absl::StatusOr<ShmTransport::Prepared> ShmTransport::Prepare(const GroupOptions& options, const ShmOptions& shm) {
  absl::StatusOr<UniqueFd> memory = RankMemory::MakeFile(shm.folder, options);
  if (!memory.ok()) return memory.status();
  absl::StatusOr<LocalListener> listener = LocalListener::Open();
  if (!listener.ok()) return listener.status();
  return Prepared{*std::move(memory), *std::move(listener)};
}

absl::StatusOr<std::unique_ptr<ShmTransport>> ShmTransport::Connect(Prepared prepared, const GroupOptions& options,
                                                                    const ShmOptions& shm, const Roster& roster,
                                                                    std::shared_ptr<GroupHealth> health, absl::Time deadline) {
  std::vector<int> local_ranks;
  for (int rank = 0; rank < options.size; ++rank) {
    if (roster.members[static_cast<size_t>(rank)].host_id == roster.members[static_cast<size_t>(options.rank)].host_id) {
      local_ranks.push_back(rank);
    }
  }
  absl::StatusOr<UniqueFd> pidfd = OwnPidfd();
  if (!pidfd.ok()) return pidfd.status();
  UniqueFd shared;
  Introduction self = {options.rank, roster.token, absl::OkStatus(), prepared.memory.get(), pidfd->get(), -1};
  if (options.rank == local_ranks.front() && options.shared_region.bytes > 0) {
    absl::StatusOr<UniqueFd> file = RankMemory::MakeSharedRegionFile(shm.folder, options);
    self.status = file.status();
    if (file.ok()) shared = *std::move(file);
    self.shared_region = shared.get();
  }
  absl::StatusOr<std::vector<Neighbour>> neighbours = IntroduceAll(prepared.listener, self, roster, local_ranks, deadline);
  if (!self.status.ok()) return self.status;
  if (!neighbours.ok()) return neighbours.status();
  for (Neighbour& neighbour : *neighbours) {
    if (neighbour.rank == local_ranks.front()) shared = std::move(neighbour.shared_region);
  }

  std::unique_ptr<ShmTransport> transport(new ShmTransport(options, shm, std::move(local_ranks), std::move(health)));
  if (absl::Status status = transport->MapAll(prepared.memory.get(), shared.get(), *neighbours, options); !status.ok())
    return status;
  std::vector<ProcessWatch::Process> processes;
  for (Neighbour& neighbour : *neighbours) {
    processes.push_back({neighbour.rank, std::move(neighbour.pidfd), std::move(neighbour.connection)});
  }
  SignalBoard* board = &transport->own().board();
  transport->watcher_ = transport->health_->AddWatcher([board] { board->Ring(); });
  absl::StatusOr<std::unique_ptr<ProcessWatch>> watch = ProcessWatch::Start(std::move(processes), transport->health_);
  if (!watch.ok()) return watch.status();
  transport->watch_ = *std::move(watch);
  return transport;
}

absl::StatusOr<std::unique_ptr<ShmTransport>> ShmTransport::Join(Store& store, const GroupOptions& options, const ShmOptions& shm) {
  if (absl::Status status = ValidateOptions(options); !status.ok()) return status;
  const absl::Time deadline = absl::Now() + options.join_timeout;
  absl::StatusOr<Prepared> prepared = Prepare(options, shm);
  absl::StatusOr<std::string> host = HostId();
  if (absl::Status status = prepared.ok() ? host.status() : prepared.status(); !status.ok()) {
    Decline(store, options, status);
    return status;
  }
  absl::StatusOr<Roster> roster = Meet(store, options, {*host, prepared->listener.address(), ""}, deadline);
  if (!roster.ok()) return roster.status();
  for (int rank = 0; rank < options.size; ++rank) {
    if (roster->members[static_cast<size_t>(rank)].host_id == *host) continue;
    return absl::FailedPreconditionError(absl::StrCat("rank ", rank, " is on another host; shared memory does not reach it"));
  }
  return Connect(*std::move(prepared), options, shm, *roster, std::make_shared<GroupHealth>(options.size), deadline);
}

ShmTransport::ShmTransport(const GroupOptions& options, const ShmOptions& shm, std::vector<int> local_ranks,
                           std::shared_ptr<GroupHealth> health)
    : rank_(options.rank),
      bounds_{options.size, options.signals, options.arena_bytes},
      shared_region_(options.shared_region),
      local_ranks_(std::move(local_ranks)),
      spin_(shm.spin.value_or(DefaultSpin(local_ranks_.size()))),
      health_(std::move(health)),
      memories_(static_cast<size_t>(options.size)) {}

ShmTransport::~ShmTransport() {
  if (watch_ != nullptr) watch_->SayGoodbye(health_->lost_rank());
  watch_.reset();
  // In a forked child the health's lock may be held by a thread that is not there.
  if (watcher_ >= 0 && owner_.IsHere()) health_->RemoveWatcher(watcher_);
}

absl::Status ShmTransport::MapAll(int own_file, int shared_file, const std::vector<Neighbour>& neighbours,
                                  const GroupOptions& options) {
  const auto map = [&](int rank, int file) {
    absl::StatusOr<RankMemory> memory = RankMemory::Map(file, shared_file, options);
    if (!memory.ok()) return memory.status();
    memories_[static_cast<size_t>(rank)] = std::make_unique<RankMemory>(*std::move(memory));
    return absl::OkStatus();
  };
  if (absl::Status status = map(rank_, own_file); !status.ok()) return status;
  own().Populate();
  for (const Neighbour& neighbour : neighbours) {
    if (absl::Status status = map(neighbour.rank, neighbour.memory.get()); !status.ok()) return status;
  }
  return absl::OkStatus();
}

bool ShmTransport::InSharedRegion(uint64_t offset, uint64_t bytes) const {
  return offset >= shared_region_.offset && offset + bytes <= shared_region_.offset + shared_region_.bytes;
}

void ShmTransport::Place(int peer, absl::Span<const std::byte> source, uint64_t offset) {
  // Shared pages are reached under the own address, so that a source in them is seen to overlap, or to be in place already.
  const int through = InSharedRegion(offset, source.size()) ? rank_ : peer;
  std::byte* place = memories_[static_cast<size_t>(through)]->arena().data() + offset;
  if (!source.empty() && source.data() != place) std::memmove(place, source.data(), source.size());
}

absl::Status ShmTransport::CheckPeer(int peer) const {
  if (memories_[static_cast<size_t>(peer)] == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", peer, " is on another host"));
  }
  return health_->Check(peer);
}

absl::Status ShmTransport::PutSignal(int peer, absl::Span<const std::byte> source, uint64_t destination_offset, int signal) {
  return Multicast({&peer, 1}, source, destination_offset, signal);
}

absl::Status ShmTransport::Multicast(absl::Span<const int> peers, absl::Span<const std::byte> source, uint64_t destination_offset,
                                     int signal) {
  bool placed_for_all = false;
  for (int peer : peers) {
    absl::Status status = CheckPut(bounds_, peer, destination_offset, source.size(), signal);
    if (!status.ok()) return status;
    status = CheckPeer(peer);
    if (!status.ok()) return InCall(status, PutName(peer, destination_offset, source.size(), signal));
    if (!placed_for_all) Place(peer, source, destination_offset);
    placed_for_all = InSharedRegion(destination_offset, source.size());
    memories_[static_cast<size_t>(peer)]->board().Raise(rank_, signal);
  }
  return absl::OkStatus();
}

absl::Status ShmTransport::Signal(int peer, int signal) {
  absl::Status status = CheckSignal(bounds_, "Signal", peer, signal);
  if (!status.ok()) return status;
  status = CheckPeer(peer);
  if (!status.ok()) return InCall(status, SignalName("Signal", peer, signal));
  memories_[static_cast<size_t>(peer)]->board().Raise(rank_, signal);
  return absl::OkStatus();
}

absl::Status ShmTransport::WaitSignal(int peer, int signal, uint64_t count, absl::Time deadline) {
  absl::Status status = CheckSignal(bounds_, "WaitSignal", peer, signal);
  if (!status.ok()) return status;
  status = own().board().Wait(peer, signal, count, deadline, spin_, [&] { return CheckPeer(peer); });
  // The name costs more than the wait: only where it is needed.
  return status.ok() ? status : InCall(status, SignalName("WaitSignal", peer, signal));
}

absl::Status ShmTransport::Flush(absl::Time) { return absl::OkStatus(); }

absl::Span<std::byte> ShmTransport::PeerArena(int peer) {
  if (peer < 0 || peer >= bounds_.size || memories_[static_cast<size_t>(peer)] == nullptr) return {};
  return memories_[static_cast<size_t>(peer)]->arena();
}

}  // namespace tidetape::collectives
