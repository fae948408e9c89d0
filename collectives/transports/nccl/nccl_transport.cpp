#include "collectives/transports/nccl/nccl_transport.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/transports/nccl/agreement.h"

namespace tidetape::collectives {
namespace {

constexpr int kMostPutsInFlight = 256;
// Copies of other sizes or alignments are slow, and the multicast address takes none.
constexpr uint64_t kMulticastAlignment = 16;

uint64_t WholePages(uint64_t bytes) {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

absl::Status Validate(const GroupOptions& options, const NcclOptions& nccl) {
  if (absl::Status status = ValidateOptions(options); !status.ok()) return status;
  if (options.shared_region.bytes > 0) return absl::InvalidArgumentError("GPUs have no shared region: set host_ranks to 0");
  if (nccl.puts_in_flight < 2 || nccl.puts_in_flight > kMostPutsInFlight) {
    return absl::InvalidArgumentError(absl::StrCat("2 to ", kMostPutsInFlight, " puts in flight, please"));
  }
  if (nccl.outbox_bytes == 0) return absl::InvalidArgumentError("the outbox needs some bytes");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclTransport>> NcclTransport::Join(Store& store, const GroupOptions& options,
                                                                   const NcclOptions& nccl, Device& device,
                                                                   const JoinControl& join_control) {
  if (absl::Status status = Validate(options, nccl); !status.ok()) return status;
  const absl::Time deadline = absl::Now() + options.join_timeout;
  absl::StatusOr<NcclLibrary> library = NcclLibrary::Load(nccl.library);
  if (!library.ok()) {
    Decline(store, options, library.status());
    return library.status();
  }
  GroupOptions control = options;
  control.arena_bytes = Agreement::ArenaBytes(options.size);
  control.signals = Agreement::kSignals;
  absl::StatusOr<std::unique_ptr<Transport>> joined = join_control(store, control);
  if (!joined.ok()) return joined.status();
  std::unique_ptr<NcclTransport> transport(new NcclTransport(options, nccl, device));
  transport->control_ = *std::move(joined);
  if (absl::Status status = transport->JoinAll(store, options, *library, deadline); !status.ok()) return status;
  return transport;
}

NcclTransport::NcclTransport(const GroupOptions& options, const NcclOptions& nccl, Device& device)
    : rank_(options.rank),
      options_(nccl),
      bounds_{options.size, options.signals, WholePages(options.arena_bytes)},
      device_(device) {}

absl::Status NcclTransport::JoinAll(Store& store, const GroupOptions& options, const NcclLibrary& library, absl::Time deadline) {
  Agreement agreement(*control_);
  const uint64_t outbox_bytes = WholePages(options_.outbox_bytes);
  absl::StatusOr<NcclMemory> memory = NcclMemory::Allocate(library, bounds_.arena_bytes + outbox_bytes);
  const std::string group = absl::StrCat(bounds_.arena_bytes, "+", outbox_bytes, " bytes, ", bounds_.signals, " signals, NCCL ",
                                         NcclVersionText(library.version()));
  if (absl::Status status = agreement.Reach(memory.status(), "an arena of", group, deadline); !status.ok()) return status;
  gpu_->memory = std::make_unique<NcclMemory>(*std::move(memory));
  arena_ = gpu_->memory->bytes().subspan(0, bounds_.arena_bytes);
  outbox_memory_ = gpu_->memory->bytes().subspan(bounds_.arena_bytes);

  absl::Status own = JoinCommunicator(store, options, library, deadline);
  if (absl::Status status = agreement.Reach(own, "communicator", "", deadline); !status.ok()) return status;
  const auto failure = [this] { return CheckAlive(*control_, rank_); };
  own = gpu_->communicator->Register(gpu_->memory->bytes(), deadline, failure);
  if (own.ok()) own = ClearArena(deadline);
  return agreement.Reach(own, "window", "", deadline);
}

absl::Status NcclTransport::JoinCommunicator(Store& store, const GroupOptions& options, const NcclLibrary& library,
                                             absl::Time deadline) {
  const std::string key = options.name + "/nccl-id";
  nccl::UniqueId id;
  if (rank_ == 0) {
    const nccl::Result result = library.functions().GetUniqueId(&id);
    if (absl::Status status = library.Check("ncclGetUniqueId", result, nullptr); !status.ok()) return status;
    if (absl::Status status = store.Set(key, {id.internal, sizeof(id.internal)}); !status.ok()) return status;
  } else {
    absl::StatusOr<std::string> text = store.Wait(key, deadline);
    if (!text.ok()) return text.status();
    std::memcpy(id.internal, text->data(), std::min(text->size(), sizeof(id.internal)));
  }
  // One index more than the caller's, for puts in several parts: nobody waits for it.
  absl::StatusOr<std::unique_ptr<NcclCommunicator>> communicator = NcclCommunicator::Join(
      library, id, bounds_.size, rank_, bounds_.signals + 1, deadline, [this] { return CheckAlive(*control_, rank_); });
  if (!communicator.ok()) return communicator.status();
  gpu_->communicator = *std::move(communicator);

  for (std::unique_ptr<Outbox>* outbox : {&gpu_->node, &gpu_->network}) {
    absl::StatusOr<std::unique_ptr<Outbox>> made = Outbox::Make(device_, bounds_.size, options_.puts_in_flight);
    if (!made.ok()) return made.status();
    *outbox = *std::move(made);
  }
  for (int i = 0; i < bounds_.size * bounds_.signals; ++i) gpu_->inboxes.push_back(std::make_unique<Inbox>(device_));
  return absl::OkStatus();
}

absl::Status NcclTransport::ClearArena(absl::Time deadline) {
  if (absl::Status status = device_.Clear(arena_.data(), arena_.size(), gpu_->node->stream()); !status.ok()) return status;
  absl::StatusOr<Device::Event> cleared = device_.Record(gpu_->node->stream());
  if (!cleared.ok()) return cleared.status();
  return AwaitEvent(device_, *cleared, deadline, [this] { return CheckAlive(*control_, rank_); });
}

NcclTransport::~NcclTransport() {
  if (!owner_.IsHere()) {
    // The child of a fork has neither the device nor the threads.
    static_cast<void>(gpu_.release());
    return;
  }
  if (gpu_->network != nullptr) Drain(absl::Now() + options_.linger);
  control_.reset();
  // Waits that nobody serves any more end with the communicator, before their streams do.
  gpu_->communicator.reset();
}

// Delivered before the others hear that we leave.
void NcclTransport::Drain(absl::Time deadline) {
  absl::StatusOr<Device::Event> in_node = device_.Record(gpu_->node->stream()), across = device_.Record(gpu_->network->stream());
  // Copies within the node wait for nobody, and use memory that goes with the communicator: in any case.
  if (in_node.ok()) AwaitEvent(device_, *in_node, deadline, [] { return absl::OkStatus(); }).IgnoreError();
  if (across.ok()) AwaitEvent(device_, *across, deadline, [this] { return CheckGroup(); }).IgnoreError();
}

absl::Status NcclTransport::CheckPeer(int peer) {
  if (absl::Status status = CheckAlive(*control_, peer); !status.ok()) return status;
  absl::Status status = gpu_->communicator->CheckAsync();
  return status.ok() ? status : absl::UnavailableError(absl::StrCat(status.message(), "; the group is broken"));
}

std::byte* NcclTransport::MappedArena(int peer) const {
  const absl::Span<const int> local = gpu_->communicator->local_ranks();
  const auto found = std::find(local.begin(), local.end(), peer);
  return found == local.end() ? nullptr : gpu_->communicator->local_memory()[static_cast<size_t>(found - local.begin())];
}

absl::Span<std::byte> NcclTransport::PeerArena(int peer) {
  if (peer == rank_) return arena_;
  std::byte* const at = MappedArena(peer);
  return at == nullptr ? absl::Span<std::byte>() : absl::MakeSpan(at, bounds_.arena_bytes);
}

bool NcclTransport::InArena(absl::Span<const std::byte> bytes) const {
  return bytes.empty() || (bytes.data() >= arena_.data() && bytes.data() + bytes.size() <= arena_.data() + arena_.size());
}

absl::Status NcclTransport::Admit(Outbox& outbox, int peer) {
  return outbox.Admit(peer, absl::Now() + options_.queue_limit, [this] { return CheckGroup(); });
}

absl::Status NcclTransport::PutInNode(int peer, absl::Span<const std::byte> source, uint64_t offset, int signal) {
  Outbox& outbox = *gpu_->node;
  if (absl::Status status = Admit(outbox, peer); !status.ok()) return status;
  std::byte* const to = PeerArena(peer).data() + offset;
  if (!source.empty() && to != source.data()) {
    absl::Status status = device_.Copy(to, source.data(), source.size(), outbox.stream());
    if (!status.ok()) return status;
  }
  return gpu_->communicator->Signal(peer, signal, outbox.stream());
}

absl::Status NcclTransport::PutAcross(int peer, absl::Span<const std::byte> source, uint64_t offset, int signal) {
  Outbox& outbox = *gpu_->network;
  NcclCommunicator& communicator = *gpu_->communicator;
  if (InArena(source)) {
    if (absl::Status status = Admit(outbox, peer); !status.ok()) return status;
    return communicator.Put(source.empty() ? arena_.subspan(0, 0) : source, peer, offset, signal, outbox.stream());
  }
  // NCCL sends from the window alone. The stream keeps a part in place until it has been sent.
  while (!source.empty()) {
    const absl::Span<const std::byte> part = source.subspan(0, outbox_memory_.size());
    source.remove_prefix(part.size());
    if (absl::Status status = Admit(outbox, peer); !status.ok()) return status;
    absl::Status status = device_.Copy(outbox_memory_.data(), part.data(), part.size(), outbox.stream());
    if (!status.ok()) return status;
    status = communicator.Put(outbox_memory_.subspan(0, part.size()), peer, offset, source.empty() ? signal : bounds_.signals,
                              outbox.stream());
    if (!status.ok()) return status;
    offset += part.size();
  }
  return absl::OkStatus();
}

// A multicast writes to every rank of the node, the own one included: all must want it, or have it.
bool NcclTransport::ReachesNode(absl::Span<const int> local_peers, absl::Span<const std::byte> source, uint64_t offset) const {
  if (gpu_->communicator->multicast() == nullptr || source.empty() || source.size() > options_.multicast_most_bytes) return false;
  if (reinterpret_cast<uintptr_t>(source.data()) % kMulticastAlignment != 0 || source.size() % kMulticastAlignment != 0 ||
      offset % kMulticastAlignment != 0) {
    return false;
  }
  const bool in_place = source.data() == arena_.data() + offset;
  for (int rank : gpu_->communicator->local_ranks()) {
    const bool wanted = std::find(local_peers.begin(), local_peers.end(), rank) != local_peers.end();
    if (!wanted && !(rank == rank_ && in_place)) return false;
  }
  return true;
}

absl::Status NcclTransport::PutToNode(absl::Span<const int> local_peers, absl::Span<const std::byte> source, uint64_t offset,
                                      int signal) {
  if (!ReachesNode(local_peers, source, offset)) {
    for (int peer : local_peers) {
      if (absl::Status status = PutInNode(peer, source, offset, signal); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  for (int peer : local_peers) {
    if (absl::Status status = Admit(*gpu_->node, peer); !status.ok()) return status;
  }
  absl::Status status = device_.Copy(gpu_->communicator->multicast() + offset, source.data(), source.size(), gpu_->node->stream());
  for (int peer : local_peers) {
    if (status.ok()) status = gpu_->communicator->Signal(peer, signal, gpu_->node->stream());
  }
  return status;
}

absl::Status NcclTransport::PutSignal(int peer, absl::Span<const std::byte> source, uint64_t destination_offset, int signal) {
  return Multicast({&peer, 1}, source, destination_offset, signal);
}

absl::Status NcclTransport::Multicast(absl::Span<const int> peers, absl::Span<const std::byte> source, uint64_t destination_offset,
                                      int signal) {
  for (int peer : peers) {
    absl::Status status = CheckPut(bounds_, peer, destination_offset, source.size(), signal);
    if (!status.ok()) return status;
    const std::string call = PutName(peer, destination_offset, source.size(), signal);
    if (status = CheckPeer(peer); !status.ok()) return InCall(status, call);
  }
  std::lock_guard lock(sending_);
  // The network first: it takes longest.
  std::vector<int> local;
  for (int peer : peers) {
    if (MappedArena(peer) != nullptr) {
      local.push_back(peer);
    } else if (absl::Status status = PutAcross(peer, source, destination_offset, signal); !status.ok()) {
      return InCall(status, PutName(peer, destination_offset, source.size(), signal));
    }
  }
  if (local.empty()) return absl::OkStatus();
  const absl::Status status = PutToNode(local, source, destination_offset, signal);
  return InCall(status, PutName(local.front(), destination_offset, source.size(), signal));
}

absl::Status NcclTransport::Signal(int peer, int signal) {
  absl::Status status = CheckSignal(bounds_, "Signal", peer, signal);
  if (!status.ok()) return status;
  const std::string call = SignalName("Signal", peer, signal);
  if (status = CheckPeer(peer); !status.ok()) return InCall(status, call);
  std::lock_guard lock(sending_);
  Outbox& outbox = MappedArena(peer) != nullptr ? *gpu_->node : *gpu_->network;
  return InCall(gpu_->communicator->Signal(peer, signal, outbox.stream()), call);
}

absl::Status NcclTransport::WaitSignal(int peer, int signal, uint64_t count, absl::Time deadline) {
  absl::Status status = CheckSignal(bounds_, "WaitSignal", peer, signal);
  if (!status.ok()) return status;
  Inbox& inbox = *gpu_->inboxes[static_cast<size_t>(peer * bounds_.signals + signal)];
  status = inbox.Take(
      count, deadline, [&](Device::Stream stream) { return gpu_->communicator->WaitOne(peer, signal, stream); },
      [&] { return CheckPeer(peer); });
  return status.ok() ? status : InCall(status, SignalName("WaitSignal", peer, signal));
}

absl::Status NcclTransport::Flush(absl::Time deadline) {
  for (Outbox* outbox : {gpu_->network.get(), gpu_->node.get()}) {
    absl::StatusOr<Device::Event> sent = absl::UnknownError("");
    {
      std::lock_guard lock(sending_);
      sent = device_.Record(outbox->stream());
    }
    if (!sent.ok()) return InCall(sent.status(), "Flush");
    absl::Status status = AwaitEvent(device_, *sent, deadline, [this] { return CheckGroup(); });
    if (!status.ok()) return InCall(status, "Flush");
  }
  return absl::OkStatus();
}

}  // namespace tidetape::collectives
