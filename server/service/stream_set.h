// The streams that are open, so that a server that stops can tell them and wait for them.
#ifndef TIDETAPE_SERVER_SERVICE_STREAM_SET_H_
#define TIDETAPE_SERVER_SERVICE_STREAM_SET_H_

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tidetape::server {

// A stream that can be asked to end. Thread-safe; must not block.
class DrainableStream {
 public:
  virtual ~DrainableStream() = default;
  // The server is about to stop: the peer should end the stream and come back later.
  virtual void Drain(absl::Duration reconnect_after) = 0;
};

// Thread-safe.
class StreamSet {
 public:
  // False once draining has begun: the stream must be refused.
  bool Add(const std::shared_ptr<DrainableStream>& stream) {
    absl::MutexLock lock(&mutex_);
    if (draining_) return false;
    streams_[stream.get()] = stream;
    return true;
  }

  void Remove(const DrainableStream* stream) {
    absl::MutexLock lock(&mutex_);
    streams_.erase(stream);
  }

  // Tells every stream, refuses new ones and waits until all have ended or the time is up. Returns the number still open.
  size_t Drain(absl::Duration reconnect_after, absl::Duration wait) {
    std::vector<std::shared_ptr<DrainableStream>> open;
    {
      absl::MutexLock lock(&mutex_);
      draining_ = true;
      for (const auto& [address, stream] : streams_) {
        if (auto locked = stream.lock()) open.push_back(std::move(locked));
      }
    }
    for (const auto& stream : open) stream->Drain(reconnect_after);
    open.clear();
    return AwaitEmpty(wait);
  }

  // Waits until all streams have ended or the time is up. Returns the number still open.
  size_t AwaitEmpty(absl::Duration wait) {
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(
                                +[](StreamSet* self) { return self->streams_.empty(); }, this),
                            wait);
    return streams_.size();
  }

  size_t size() const {
    absl::MutexLock lock(&mutex_);
    return streams_.size();
  }

 private:
  mutable absl::Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<const DrainableStream*, std::weak_ptr<DrainableStream>> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_SERVICE_STREAM_SET_H_
