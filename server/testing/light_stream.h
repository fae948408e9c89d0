// For load generators: one gRPC stream over a connection of its own, driven by the caller's loop, for a fraction of the CPU that
// gRPC's own client takes for it. HTTP/2 is nghttp2's; see github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md.
#ifndef TIDETAPE_SERVER_TESTING_LIGHT_STREAM_H_
#define TIDETAPE_SERVER_TESTING_LIGHT_STREAM_H_

#include <google/protobuf/message_lite.h>
#include <nghttp2/nghttp2.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tidetape::server {

// Plaintext. Not thread-safe.
class LightStream {
 public:
  using OnMessage = std::function<void(std::string_view message)>;

  // Connects to `address`, a number and a port as in 127.0.0.1:50551, and begins a call of `method`, /PACKAGE.SERVICE/METHOD.
  // `on_message` is called by Progress with what comes. UNAVAILABLE where nobody listens there.
  static absl::StatusOr<std::unique_ptr<LightStream>> Open(const std::string& address, const std::string& method,
                                                           OnMessage on_message);
  ~LightStream();
  LightStream(const LightStream&) = delete;
  LightStream& operator=(const LightStream&) = delete;

  // To be watched for input, and for output edge by edge; Progress is to be called at either.
  int fd() const { return fd_; }

  // Queues the message, and sends what the connection takes now.
  void Write(const google::protobuf::MessageLite& message);
  // Reads and writes what can be read and written now.
  void Progress();

  // All that was queued has left.
  bool flushed() const { return outgoing_.size() == taken_ && unsent_.empty(); }
  // The server ended the call, or the connection broke. Nothing happens any more.
  bool ended() const { return ended_; }

 private:
  LightStream(int fd, OnMessage on_message) : fd_(fd), on_message_(std::move(on_message)) {}

  static nghttp2_session_callbacks* Callbacks();
  absl::Status Begin(const std::string& address, const std::string& method);
  void Receive();
  void Send();
  void Deliver();
  ssize_t Give(uint8_t* buffer, size_t length, uint32_t* flags);

  const int fd_;
  const OnMessage on_message_;
  nghttp2_session* session_ = nullptr;
  int32_t stream_ = 0;
  std::string outgoing_;  // messages with their prefixes, of which nghttp2 has the first taken_ bytes
  size_t taken_ = 0;
  std::string unsent_;    // frames that the connection did not take yet
  std::string incoming_;  // not yet delivered
  bool ended_ = false;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_TESTING_LIGHT_STREAM_H_
