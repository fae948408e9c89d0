#include "collectives/testing/thread_transport.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace tidetape::collectives {
namespace {

std::byte* MustMap(void* at, int64_t bytes, int flags, int file) {
  void* mapped = mmap(at, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
  if (mapped == MAP_FAILED) {
    std::perror("mmap of a test's arena");
    std::abort();
  }
  return static_cast<std::byte*>(mapped);
}

}  // namespace

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(ThreadGroup& group, int rank) : group_(group), rank_(rank), local_({rank}) {}

  int rank() const override { return rank_; }
  int size() const override { return group_.options_.ranks; }
  int signals() const override { return group_.options_.signals; }
  absl::Span<std::byte> arena() override { return group_.arena(rank_); }

  absl::Status PutSignal(int peer, absl::Span<const std::byte> source, uint64_t destination_offset, int signal) override {
    if (absl::Status status = Check(peer, signal); !status.ok()) return status;
    if (destination_offset + source.size() > static_cast<uint64_t>(group_.options_.arena_bytes)) {
      return absl::OutOfRangeError(absl::StrCat("put of ", source.size(), " bytes to rank ", peer, " at ", destination_offset));
    }
    group_.Send({rank_, peer, signal}, {source, destination_offset});
    return absl::OkStatus();
  }

  absl::Status Signal(int peer, int signal) override { return PutSignal(peer, {}, 0, signal); }

  absl::Status WaitSignal(int peer, int signal, uint64_t count, absl::Time deadline) override {
    if (absl::Status status = Check(peer, signal); !status.ok()) return status;
    absl::MutexLock lock(&group_.mutex_);
    uint64_t& arrived = group_.arrived_[{peer, rank_, signal}];
    const auto enough = [&] { return arrived >= count; };
    if (!group_.mutex_.AwaitWithDeadline(absl::Condition(&enough), deadline)) {
      return absl::DeadlineExceededError(
          absl::StrCat("wait for signal ", signal, " from rank ", peer, ": ", arrived, " of ", count, " have come"));
    }
    arrived -= count;
    return absl::OkStatus();
  }

  absl::Status Flush(absl::Time deadline) override {
    absl::MutexLock lock(&group_.mutex_);
    const auto done = [&] { return group_.open_sends_[rank_] == 0; };
    if (group_.mutex_.AwaitWithDeadline(absl::Condition(&done), deadline)) return absl::OkStatus();
    return absl::DeadlineExceededError("flush");
  }

  absl::Span<const int> LocalPeers() const override { return local_; }
  absl::Span<std::byte> PeerArena(int peer) override { return peer == rank_ ? arena() : absl::Span<std::byte>(); }

 private:
  absl::Status Check(int peer, int signal) const {
    if (peer >= 0 && peer < size() && signal >= 0 && signal < signals()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("no rank ", peer, " or signal ", signal));
  }

  ThreadGroup& group_;
  const int rank_;
  const std::vector<int> local_;
};

ThreadGroup::ThreadGroup(const Options& options) : options_(options), open_sends_(options.ranks, 0) {
  int shared = -1;  // of the host
  for (int rank = 0; rank < options.ranks; ++rank) {
    arenas_.push_back(MustMap(nullptr, options.arena_bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1));
    if (options.shared_bytes == 0) continue;
    if (rank % options.host_ranks == 0) {
      if (shared >= 0) close(shared);
      shared = memfd_create("shared slots", 0);
      if (ftruncate(shared, options.shared_bytes) != 0) std::abort();
    }
    MustMap(arenas_.back(), options.shared_bytes, MAP_SHARED | MAP_FIXED, shared);
  }
  if (shared >= 0) close(shared);
  worker_ = std::thread([this] { CarryOut(); });
}

ThreadGroup::~ThreadGroup() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  worker_.join();
  for (std::byte* arena : arenas_) munmap(arena, options_.arena_bytes);
}

std::unique_ptr<Transport> ThreadGroup::MakeTransport(int rank) { return std::make_unique<ThreadTransport>(*this, rank); }

void ThreadGroup::Silence(int rank) {
  absl::MutexLock lock(&mutex_);
  silent_.insert(rank);
}

int64_t ThreadGroup::unclaimed_signals() {
  absl::MutexLock lock(&mutex_);
  int64_t count = 0;
  for (const auto& [channel, signals] : arrived_) count += signals;
  for (const auto& [channel, deliveries] : under_way_) count += deliveries.size();
  return count;
}

void ThreadGroup::Send(const Channel& channel, const Delivery& delivery) {
  absl::MutexLock lock(&mutex_);
  under_way_[channel].push_back(delivery);
  ++open_sends_[std::get<0>(channel)];
}

bool ThreadGroup::SameMemory(int rank, const Delivery& delivery, int peer) const {
  return rank / options_.host_ranks == peer / options_.host_ranks &&
         delivery.destination + delivery.source.size() <= static_cast<uint64_t>(options_.shared_bytes) &&
         delivery.source.data() == arenas_[rank] + delivery.destination;
}

void ThreadGroup::CarryOut() {
  std::mt19937_64 random(options_.seed);
  while (true) {
    Channel channel;
    Delivery delivery;
    {
      absl::MutexLock lock(&mutex_);
      std::vector<Channel> open;
      const auto ready = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        open.clear();
        for (const auto& [key, deliveries] : under_way_) {
          if (!deliveries.empty() && silent_.count(std::get<0>(key)) == 0) open.push_back(key);
        }
        return ending_ || !open.empty();
      };
      mutex_.Await(absl::Condition(&ready));
      if (ending_) return;
      channel = open[random() % open.size()];
      delivery = under_way_[channel].front();
    }
    // Late, and the second half first.
    if (std::uniform_real_distribution<>()(random) < options_.laziness)
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 20));
    std::byte* destination = arenas_[std::get<1>(channel)] + delivery.destination;
    const size_t half = delivery.source.size() / 2;
    if (!delivery.source.empty() && !SameMemory(std::get<0>(channel), delivery, std::get<1>(channel))) {
      std::memmove(destination + half, delivery.source.data() + half, delivery.source.size() - half);
      std::memmove(destination, delivery.source.data(), half);
    }
    absl::MutexLock lock(&mutex_);
    under_way_[channel].pop_front();
    ++arrived_[channel];
    --open_sends_[std::get<0>(channel)];
  }
}

}  // namespace tidetape::collectives
