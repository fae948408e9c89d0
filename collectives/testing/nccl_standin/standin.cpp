#include "collectives/testing/nccl_standin/standin.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "collectives/testing/nccl_standin/communicator.h"
#include "collectives/testing/nccl_standin/shared_state.h"
#include "collectives/transports/nccl/nccl_abi.h"

namespace tidetape::collectives::standin {
namespace {

using namespace nccl;

constexpr int kVersion = 23203, kOldVersion = 23007;

// Everything of this process. Never destroyed: a process may end with streams running.
struct Process {
  std::mutex mutex;
  StandinOptions options;
  std::string calls, calls_given;
  std::map<void*, SharedMemory> allocations;
  std::map<const std::byte*, Communicator*> multicast_addresses;
};
Process& process() {
  static Process& process = *new Process;
  return process;
}

void Record(const std::string& call) {
  std::lock_guard lock(process().mutex);
  process().calls += call + "\n";
}

std::string Named(const char* name, int64_t value) { return std::string(" ") + name + "=" + std::to_string(value); }

Communicator* Of(Comm comm) { return reinterpret_cast<Communicator*>(comm); }
Communicator* Of(Window window) { return reinterpret_cast<Communicator*>(window); }

// Refuses calls of two threads at once, which NCCL does not promise to survive.
class OneAtATime {
 public:
  OneAtATime() : alone_(!busy_.exchange(true)) {}
  ~OneAtATime() {
    if (alone_) busy_ = false;
  }
  explicit operator bool() const { return alone_; }

 private:
  static inline std::atomic<bool> busy_ = false;
  const bool alone_;
};

bool IsPeer(Comm comm, int peer, int signal) {
  return comm != nullptr && peer >= 0 && peer < Of(comm)->ranks() && signal >= 0 && signal < kMaxSignals;
}

}  // namespace
}  // namespace tidetape::collectives::standin

using namespace tidetape::collectives;
using namespace tidetape::collectives::nccl;
using namespace tidetape::collectives::standin;

extern "C" {

void tt_standin_configure(const StandinOptions* options) { process().options = *options; }

const char* tt_standin_calls() {
  std::lock_guard lock(process().mutex);
  process().calls_given = process().calls;
  return process().calls_given.c_str();
}

void tt_standin_copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  Communicator* node = nullptr;
  size_t offset = 0;
  {
    std::lock_guard lock(process().mutex);
    const auto* const at = static_cast<const std::byte*>(to);
    auto after = process().multicast_addresses.upper_bound(at);
    if (after != process().multicast_addresses.begin()) {
      --after;
      offset = static_cast<size_t>(at - after->first);
      if (offset < after->second->window_bytes()) node = after->second;
    }
  }
  if (node != nullptr) {
    Record("multicast" + Named("bytes", bytes));
    node->CopyToNode(offset, from, bytes);
  } else {
    std::memmove(to, from, bytes);
  }
}

Result ncclGetVersion(int* version) {
  *version = process().options.failure == StandinFailure::kOldVersion ? kOldVersion : kVersion;
  return kSuccess;
}

const char* ncclGetErrorString(Result result) {
  switch (result) {
    case kSuccess:
      return "no error";
    case kInvalidArgument:
      return "invalid argument";
    case kInvalidUsage:
      return "invalid usage";
    case kRemoteError:
      return "remote process exited or there was a network error";
    case kInProgress:
      return "NCCL operation in progress";
    default:
      return "internal error";
  }
}

const char* ncclGetLastError(Comm) { return ""; }

Result ncclGetUniqueId(UniqueId* id) {
  Record("ncclGetUniqueId");
  SharedMemory memory;
  void* const at = SharedMemory::Make(sizeof(Shared), &memory);
  if (at == nullptr) return kSystemError;
  munmap(at, sizeof(Shared));
  static_assert(sizeof(SharedMemory) <= sizeof(UniqueId));
  std::memcpy(id->internal, &memory, sizeof(memory));
  return kSuccess;
}

Result ncclCommInitRankConfig(Comm* comm, int ranks, UniqueId id, int rank, Config* config) {
  Record("ncclCommInitRankConfig" + Named("ranks", ranks) + Named("rank", rank) + Named("blocking", config->blocking) +
         Named("cta_policy", config->cta_policy) + Named("rma_signals", config->num_rma_sig));
  if (ranks > kMaxRanks || config->num_rma_sig > kMaxSignals || config->magic != kMagic) return kInvalidArgument;
  SharedMemory memory;
  std::memcpy(&memory, id.internal, sizeof(memory));
  auto* const made = new Communicator(ranks, rank, memory, process().options);
  *comm = reinterpret_cast<Comm>(made);
  return made->async_error();
}

Result ncclCommGetAsyncError(Comm comm, Result* error) {
  *error = Of(comm)->async_error();
  return kSuccess;
}

Result ncclCommAbort(Comm comm) {
  Record("ncclCommAbort");
  {
    std::lock_guard lock(process().mutex);
    if (Of(comm)->multimem() != nullptr) process().multicast_addresses.erase(Of(comm)->multimem());
  }
  delete Of(comm);
  return kSuccess;
}

Result ncclMemAlloc(void** at, size_t bytes) {
  Record("ncclMemAlloc" + Named("bytes", bytes));
  SharedMemory memory;
  *at = process().options.failure == StandinFailure::kNoMemory ? nullptr : SharedMemory::Make(bytes, &memory);
  if (*at == nullptr) return kSystemError;
  // What was there before is anything.
  std::memset(*at, 0xdb, bytes);
  std::lock_guard lock(process().mutex);
  process().allocations[*at] = memory;
  return kSuccess;
}

Result ncclMemFree(void* at) {
  Record("ncclMemFree");
  std::lock_guard lock(process().mutex);
  const auto found = process().allocations.find(at);
  if (found == process().allocations.end()) return kInvalidArgument;
  munmap(at, found->second.bytes);
  close(found->second.file);
  process().allocations.erase(found);
  return kSuccess;
}

Result ncclCommWindowRegister(Comm comm, void* at, size_t bytes, Window* window, int flags) {
  Record("ncclCommWindowRegister" + Named("bytes", bytes) + Named("flags", flags));
  *window = nullptr;
  SharedMemory memory;
  {
    std::lock_guard lock(process().mutex);
    const auto found = process().allocations.find(at);
    if (found == process().allocations.end() || found->second.bytes != bytes) return kInvalidArgument;
    memory = found->second;
  }
  const bool null = process().options.failure == StandinFailure::kNullWindow;
  Of(comm)->RegisterWindow(static_cast<std::byte*>(at), memory, [comm, window, null] {
    if (null) return;
    *window = reinterpret_cast<Window>(comm);
    std::lock_guard lock(process().mutex);
    if (Of(comm)->multimem() != nullptr) process().multicast_addresses[Of(comm)->multimem()] = Of(comm);
  });
  return kInProgress;
}

Team ncclTeamLsa(Comm comm) { return Of(comm)->lsa(); }

Result ncclGetLsaDevicePointer(Window window, size_t offset, int lsa_rank, void** at) {
  if (window == nullptr || lsa_rank < 0 || lsa_rank >= Of(window)->lsa().ranks) return kInvalidArgument;
  *at = Of(window)->LsaPointer(lsa_rank) + offset;
  return kSuccess;
}

Result ncclGetLsaMultimemDevicePointer(Window window, size_t offset, void** at) {
  if (window == nullptr) return kInvalidArgument;
  std::byte* const address = Of(window)->multimem();
  *at = address == nullptr ? nullptr : address + offset;
  return kSuccess;
}

Result ncclPutSignal(const void* from, size_t count, int type, int peer, Window window, size_t offset, int signal, int context,
                     unsigned flags, Comm comm, Stream stream) {
  const OneAtATime alone;
  Record("ncclPutSignal" + Named("peer", peer) + Named("bytes", count) + Named("signal", signal));
  if (!alone) return kInvalidUsage;
  if (!IsPeer(comm, peer, signal) || type != kInt8 || context != 0 || flags != 0 || Of(window) != Of(comm)) return kInvalidArgument;
  return Of(comm)->Put(from, count, peer, offset, signal, static_cast<HostStream*>(stream));
}

Result ncclSignal(int peer, int signal, int context, unsigned flags, Comm comm, Stream stream) {
  const OneAtATime alone;
  Record("ncclSignal" + Named("peer", peer) + Named("signal", signal));
  if (!alone) return kInvalidUsage;
  if (!IsPeer(comm, peer, signal) || context != 0 || flags != 0) return kInvalidArgument;
  return Of(comm)->Signal(peer, signal, static_cast<HostStream*>(stream));
}

Result ncclWaitSignal(int count, WaitSignalDesc* waits, Comm comm, Stream stream) {
  const OneAtATime alone;
  Record("ncclWaitSignal" + Named("waits", count));
  if (!alone) return kInvalidUsage;
  for (int i = 0; i < count; ++i) {
    if (!IsPeer(comm, waits[i].peer, waits[i].signal) || waits[i].context != 0) return kInvalidArgument;
    if (const Result result = Of(comm)->Wait(waits[i], static_cast<HostStream*>(stream)); result != kSuccess) return result;
  }
  return kSuccess;
}

}  // extern "C"
