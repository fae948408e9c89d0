// A group of ranks that are threads of one process, with every freedom that a transport has, used to the full: puts are carried out
// late, by another thread, byte ranges in any order, and signals of different indices overtake each other.
#ifndef TIDETAPE_COLLECTIVES_TESTING_THREAD_TRANSPORT_H_
#define TIDETAPE_COLLECTIVES_TESTING_THREAD_TRANSPORT_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "collectives/transport.h"

namespace tidetape::collectives {

// Owns all ranks' arenas and the thread that carries out what they ask for. Outlives the transports that it hands out.
class ThreadGroup {
 public:
  struct Options {
    int ranks = 2;
    int signals = 16;
    int64_t arena_bytes = 0;
    int64_t shared_bytes = 0;  // the first ones of the arena, whole pages: one memory for the ranks of a host
    int host_ranks = 1;        // rank r is on host r / host_ranks
    uint64_t seed = 0;         // of the order in which things are carried out
    double laziness = 0.5;     // probability to wait a little before one is
  };
  explicit ThreadGroup(const Options& options);
  ~ThreadGroup();

  std::unique_ptr<Transport> MakeTransport(int rank);
  absl::Span<std::byte> arena(int rank) { return absl::MakeSpan(arenas_[rank], options_.arena_bytes); }
  // From now on nothing that the rank sends is carried out.
  void Silence(int rank);
  // Signals that have arrived, or are under way, and were not waited for.
  int64_t unclaimed_signals();

 private:
  friend class ThreadTransport;
  // What one rank does to another on one index, in order.
  using Channel = std::tuple<int, int, int>;  // sender, receiver, signal
  struct Delivery {
    absl::Span<const std::byte> source;
    uint64_t destination = 0;
  };

  void Send(const Channel& channel, const Delivery& delivery);
  void CarryOut();

  // Whether a byte range of one rank is that of the other, as the same memory.
  bool SameMemory(int rank, const Delivery& delivery, int peer) const;

  const Options options_;
  std::vector<std::byte*> arenas_;  // mapped
  absl::Mutex mutex_;
  std::map<Channel, std::deque<Delivery>> under_way_ ABSL_GUARDED_BY(mutex_);
  std::map<Channel, uint64_t> arrived_ ABSL_GUARDED_BY(mutex_);
  std::vector<int64_t> open_sends_ ABSL_GUARDED_BY(mutex_);  // by sender
  std::set<int> silent_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread worker_;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TESTING_THREAD_TRANSPORT_H_
