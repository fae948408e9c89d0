// A slow link between TCP endpoints, in user space: a proxy that passes bytes on at a rate, after a delay, through a queue of
// bounded size. For machines where the kernel's own shaping (tc netem) is missing.
#ifndef TIDETAPE_COLLECTIVES_TESTING_SLOW_LINK_H_
#define TIDETAPE_COLLECTIVES_TESTING_SLOW_LINK_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/testing/link_model.h"
#include "collectives/transports/common/unique_fd.h"
#include "collectives/transports/rendezvous/store.h"
#include "collectives/transports/tcp/socket.h"

namespace tidetape::collectives {

// All connections through one object share the link, each direction its own; a thread carries them. A connection that ends on one
// side is ended on the other after what it sent has arrived.
class SlowLink {
 public:
  // Listens on the target's address; endpoint() stands for `target` from then on.
  static absl::StatusOr<std::unique_ptr<SlowLink>> Start(const Endpoint& target, const LinkOptions& options);
  ~SlowLink();

  const Endpoint& endpoint() const { return endpoint_; }
  // How often a queue was overrun, in both directions.
  uint64_t overruns() const { return overruns_.load(std::memory_order_relaxed); }
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  struct Parcel;
  struct Stream;

  SlowLink(UniqueFd listener, UniqueFd stop, UniqueFd timer, Endpoint endpoint, Endpoint target, const LinkOptions& options);
  void Run();
  void Accept();
  // Moves what can be moved; returns when to look again without other cause.
  absl::Time Carry(Stream& stream, absl::Time now);
  void Read(Stream& stream, absl::Time now);
  void Write(Stream& stream, absl::Time now);

  const UniqueFd listener_;
  const UniqueFd stop_;
  const UniqueFd timer_;
  const Endpoint endpoint_;
  const Endpoint target_;
  const uint64_t segment_bytes_;
  LinkModel links_[2];         // towards the target, and back
  std::list<Stream> streams_;  // two a connection
  std::atomic<uint64_t> overruns_ = 0;
  std::atomic<uint64_t> bytes_ = 0;
  std::thread thread_;
};

// A store that puts a slow link before each rank that sets its record through it: whoever connects to the rank goes over the link.
// Give it to a transport's Join in place of `store`, and keep it for as long as the transport.
class SlowLinkStore final : public Store {
 public:
  SlowLinkStore(Store& store, const LinkOptions& options) : store_(store), options_(options) {}

  absl::Status Set(absl::string_view key, absl::string_view value) override;
  absl::StatusOr<std::string> Wait(absl::string_view key, absl::Time deadline) override { return store_.Wait(key, deadline); }

  // Null until the rank has set its record.
  SlowLink* link() const { return link_.get(); }

 private:
  Store& store_;
  const LinkOptions options_;
  std::unique_ptr<SlowLink> link_;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TESTING_SLOW_LINK_H_
