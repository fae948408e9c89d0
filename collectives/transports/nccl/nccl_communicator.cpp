#include "collectives/transports/nccl/nccl_communicator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace tidetape::collectives {
namespace {

constexpr absl::Duration kPollPause = absl::Microseconds(200);

}  // namespace

absl::StatusOr<NcclMemory> NcclMemory::Allocate(const NcclLibrary& library, size_t bytes) {
  void* at = nullptr;
  const nccl::Result result = library.functions().MemAlloc(&at, bytes);
  if (absl::Status status = library.Check("ncclMemAlloc", result, nullptr); !status.ok()) {
    return absl::ResourceExhaustedError(absl::StrCat("no ", bytes, " bytes for the arena: ", status.message()));
  }
  return NcclMemory(library, absl::MakeSpan(static_cast<std::byte*>(at), bytes));
}

NcclMemory::NcclMemory(NcclMemory&& other) noexcept : library_(other.library_), bytes_(std::exchange(other.bytes_, {})) {}

NcclMemory::~NcclMemory() {
  if (!bytes_.empty()) library_.functions().MemFree(bytes_.data());
}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Join(const NcclLibrary& library, const nccl::UniqueId& id,
                                                                         int size, int rank, int signals, absl::Time deadline,
                                                                         Failure failure) {
  nccl::Config config;
  config.blocking = 0;  // so that a rank that never comes does not hold us
  config.cta_policy = nccl::kCtaPolicyZero;
  config.comm_name = "tidetape";
  config.num_rma_ctx = 1;
  config.num_rma_sig = signals;
  std::unique_ptr<NcclCommunicator> made(new NcclCommunicator(library, rank));
  const nccl::Result result = library.functions().CommInitRankConfig(&made->comm_, size, id, rank, &config);
  if (absl::Status status = made->Settle("ncclCommInitRankConfig", result, deadline, failure); !status.ok()) return status;
  return made;
}

NcclCommunicator::~NcclCommunicator() {
  // ncclCommDestroy may wait for the other ranks, which leave when they like.
  if (comm_ != nullptr) library_.functions().CommAbort(comm_);
}

absl::Status NcclCommunicator::Settle(absl::string_view call, nccl::Result result, absl::Time deadline, Failure failure) {
  while (result == nccl::kInProgress) {
    if (absl::Status status = failure(); !status.ok())
      return absl::Status(status.code(), absl::StrCat(call, ": ", status.message()));
    if (absl::Now() >= deadline) return absl::DeadlineExceededError(absl::StrCat(call, " has not ended before the deadline"));
    absl::SleepFor(kPollPause);
    const nccl::Result asked = library_.functions().CommGetAsyncError(comm_, &result);
    if (absl::Status status = library_.Check("ncclCommGetAsyncError", asked, comm_); !status.ok()) return status;
  }
  return library_.Check(call, result, comm_);
}

absl::Status NcclCommunicator::Register(absl::Span<std::byte> memory, absl::Time deadline, Failure failure) {
  const nccl::Result result =
      library_.functions().CommWindowRegister(comm_, memory.data(), memory.size(), &window_, nccl::kWinCollSymmetric);
  if (absl::Status status = Settle("ncclCommWindowRegister", result, deadline, failure); !status.ok()) return status;
  if (window_ == nullptr) {
    return absl::FailedPreconditionError(
        "ncclCommWindowRegister succeeded and gave no window: this machine has no symmetric memory for NCCL (it needs CUDA's "
        "virtual "
        "memory management, and peer access between the GPUs of a node)");
  }
  return AskAboutNode();
}

absl::Status NcclCommunicator::AskAboutNode() {
  const nccl::NcclFunctions& functions = library_.functions();
  const nccl::Team node = functions.TeamLsa(comm_);
  for (int i = 0; i < node.ranks; ++i) {
    void* at = nullptr;
    const nccl::Result result = functions.GetLsaDevicePointer(window_, 0, i, &at);
    if (absl::Status status = library_.Check("ncclGetLsaDevicePointer", result, comm_); !status.ok()) return status;
    if (at == nullptr)
      return absl::InternalError(absl::StrCat("ncclGetLsaDevicePointer gave no address of rank ", i, " of the node"));
    local_ranks_.push_back(rank_ + (i - node.rank) * node.stride);
    local_memory_.push_back(static_cast<std::byte*>(at));
  }
  void* multicast = nullptr;
  // Not an error: hardware without multicast says so here.
  if (functions.GetLsaMultimemDevicePointer(window_, 0, &multicast) == nccl::kSuccess) {
    multicast_ = static_cast<std::byte*>(multicast);
  }
  return absl::OkStatus();
}

absl::Status NcclCommunicator::Put(absl::Span<const std::byte> source, int peer, size_t offset, int signal, nccl::Stream stream) {
  std::lock_guard lock(mutex_);
  const nccl::Result result =
      library_.functions().PutSignal(source.data(), source.size(), nccl::kInt8, peer, window_, offset, signal, 0, 0, comm_, stream);
  return library_.Check("ncclPutSignal", result, comm_);
}

absl::Status NcclCommunicator::Signal(int peer, int signal, nccl::Stream stream) {
  std::lock_guard lock(mutex_);
  return library_.Check("ncclSignal", library_.functions().Signal(peer, signal, 0, 0, comm_, stream), comm_);
}

absl::Status NcclCommunicator::WaitOne(int peer, int signal, nccl::Stream stream) {
  nccl::WaitSignalDesc wait = {1, peer, signal, 0};
  std::lock_guard lock(mutex_);
  return library_.Check("ncclWaitSignal", library_.functions().WaitSignal(1, &wait, comm_, stream), comm_);
}

absl::Status NcclCommunicator::CheckAsync() {
  nccl::Result error = nccl::kSuccess;
  std::lock_guard lock(mutex_);
  const nccl::Result asked = library_.functions().CommGetAsyncError(comm_, &error);
  if (absl::Status status = library_.Check("ncclCommGetAsyncError", asked, comm_); !status.ok()) return status;
  return error == nccl::kInProgress ? absl::OkStatus() : library_.Check("ncclCommGetAsyncError", error, comm_);
}

}  // namespace tidetape::collectives
