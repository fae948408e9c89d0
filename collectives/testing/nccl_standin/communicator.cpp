#include "collectives/testing/nccl_standin/communicator.h"

#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <utility>

namespace tidetape::collectives::standin {
namespace {

constexpr int kMostPuts = 256;

void Pause() { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

}  // namespace

Communicator::Communicator(int ranks, int rank, const SharedMemory& shared, const StandinOptions& options)
    : ranks_(ranks),
      rank_(rank),
      options_(options),
      maps_(static_cast<size_t>(ranks)),
      in_flight_(static_cast<size_t>(ranks)),
      expected_(static_cast<size_t>(ranks), std::vector<uint32_t>(kMaxSignals)) {
  shared_ = static_cast<Shared*>(shared.Map());
  if (shared_ == nullptr) {
    async_error_ = nccl::kSystemError;
    return;
  }
  InBackground([] {});
}

Communicator::~Communicator() {
  aborted_ = true;
  if (shared_ != nullptr) shared_->WakeAll(rank_);
  if (background_.joinable()) background_.join();
  while (enqueued_ > 0) Pause();
  for (std::byte* map : maps_) {
    if (map != nullptr) munmap(map, window_bytes_);
  }
  if (multimem_ != nullptr) munmap(multimem_, window_bytes_);
  if (shared_ != nullptr) munmap(shared_, sizeof(Shared));
}

// A collective: does `work` after all ranks have come, and is done when all have done theirs.
void Communicator::InBackground(std::function<void()> work) {
  if (background_.joinable()) background_.join();
  async_error_ = nccl::kInProgress;
  background_ = std::thread([this, work = std::move(work)] {
    if (!shared_->Barrier(ranks_, &generation_, aborted_)) return;
    work();
    if (shared_->Barrier(ranks_, &generation_, aborted_)) async_error_ = nccl::kSuccess;
  });
}

void Communicator::RegisterWindow(const std::byte* own, const SharedMemory& memory, std::function<void()> done) {
  own_ = own;
  shared_->windows[rank_] = memory;
  InBackground([this, memory, done = std::move(done)] {
    for (int peer = 0; peer < ranks_; ++peer) maps_[peer] = static_cast<std::byte*>(shared_->windows[peer].Map());
    window_bytes_ = memory.bytes;
    // Addresses only: what is copied there goes to all.
    if (options_.multimem) {
      multimem_ =
          static_cast<std::byte*>(mmap(nullptr, memory.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    }
    done();
  });
}

bool Communicator::InWindow(const void* at, size_t bytes) const {
  const auto* const from = static_cast<const std::byte*>(at);
  return from >= own_ && from + bytes <= own_ + window_bytes_;
}

void Communicator::Enqueue(HostStream* stream, std::function<void()> work) {
  struct Item {
    Communicator* self;
    std::function<void()> work;
  };
  ++enqueued_;
  stream->enqueue(
      stream,
      [](void* at) {
        std::unique_ptr<Item> item(static_cast<Item*>(at));
        item->work();
        --item->self->enqueued_;
      },
      new Item{this, std::move(work)});
}

void Communicator::CountPut() {
  if (++puts_ <= options_.after_puts) return;
  if (options_.failure == StandinFailure::kAsyncError) async_error_ = nccl::kRemoteError;
  if (options_.failure == StandinFailure::kAborted) aborted_ = true;
}

nccl::Result Communicator::Put(const void* from, size_t bytes, int peer, size_t offset, int signal, HostStream* stream) {
  CountPut();
  if (aborted_) return nccl::kInvalidUsage;
  if (!InWindow(from, bytes) || offset + bytes > window_bytes_) return nccl::kInvalidArgument;
  if (++in_flight_[peer] > kMostPuts) return nccl::kInvalidUsage;
  Enqueue(stream, [=, this] {
    if (bytes > 0 && !aborted_) std::memmove(maps_[peer] + offset, from, bytes);
    if (!aborted_) shared_->Raise(peer, rank_, signal);
    --in_flight_[peer];
  });
  return nccl::kSuccess;
}

nccl::Result Communicator::Signal(int peer, int signal, HostStream* stream) {
  if (aborted_) return nccl::kInvalidUsage;
  Enqueue(stream, [=, this] {
    if (!aborted_) shared_->Raise(peer, rank_, signal);
  });
  return nccl::kSuccess;
}

nccl::Result Communicator::Wait(const nccl::WaitSignalDesc& wait, HostStream* stream) {
  if (aborted_) return nccl::kInvalidUsage;
  const uint32_t expected = expected_[wait.peer][wait.signal] += static_cast<uint32_t>(wait.count);
  Enqueue(stream, [=, this] { shared_->Await(rank_, wait.peer, wait.signal, expected, aborted_); });
  return nccl::kSuccess;
}

void Communicator::CopyToNode(size_t offset, const void* from, size_t bytes) {
  for (int i = 0; i < per_node(); ++i) std::memmove(LsaPointer(i) + offset, from, bytes);
}

}  // namespace tidetape::collectives::standin
