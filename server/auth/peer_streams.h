// How many streams each peer has open.
#ifndef TIDETAPE_SERVER_AUTH_PEER_STREAMS_H_
#define TIDETAPE_SERVER_AUTH_PEER_STREAMS_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tidetape::server {

// Thread-safe.
class PeerStreams {
 public:
  explicit PeerStreams(size_t most) : most_(most) {}

  // A place for one more stream of the peer, given back with the last copy of the pointer; null where it has `most` already. The
  // PeerStreams outlives it.
  std::shared_ptr<void> Take(const std::string& peer) {
    {
      absl::MutexLock lock(&mutex_);
      size_t& open = open_[peer];
      if (open >= most_) return nullptr;
      ++open;
    }
    return std::shared_ptr<void>(this, [this, peer](void*) {
      absl::MutexLock lock(&mutex_);
      const auto it = open_.find(peer);
      if (--it->second == 0) open_.erase(it);
    });
  }

 private:
  const size_t most_;
  absl::Mutex mutex_;
  std::map<std::string, size_t> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_AUTH_PEER_STREAMS_H_
