#include "server/testing/light_stream.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tidetape::server {
namespace {

// Before each message: a byte that says whether it is compressed, and its length in network order.
constexpr size_t kPrefixBytes = 5;

nghttp2_nv Header(const std::string& name, const std::string& value) {
  const auto bytes = [](const std::string& text) { return reinterpret_cast<uint8_t*>(const_cast<char*>(text.data())); };
  return {bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

absl::StatusOr<sockaddr_in> ParseAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  sockaddr_in parsed = {};
  parsed.sin_family = AF_INET;
  int port = 0;
  if (colon == std::string::npos || inet_pton(AF_INET, address.substr(0, colon).c_str(), &parsed.sin_addr) != 1 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port)) {
    return absl::InvalidArgumentError(absl::StrCat("'", address, "' is not an IPv4 address and a port"));
  }
  parsed.sin_port = htons(static_cast<uint16_t>(port));
  return parsed;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LightStream>> LightStream::Open(const std::string& address, const std::string& method,
                                                               OnMessage on_message) {
  const absl::StatusOr<sockaddr_in> server = ParseAddress(address);
  if (!server.ok()) return server.status();
  std::unique_ptr<LightStream> stream(new LightStream(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), std::move(on_message)));
  const int on = 1;
  if (stream->fd_ < 0 || connect(stream->fd_, reinterpret_cast<const sockaddr*>(&*server), sizeof(*server)) != 0 ||
      setsockopt(stream->fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0 || fcntl(stream->fd_, F_SETFL, O_NONBLOCK) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot connect to ", address, ": ", std::strerror(errno)));
  }
  if (absl::Status status = stream->Begin(address, method); !status.ok()) return status;
  return stream;
}

LightStream::~LightStream() {
  nghttp2_session_del(session_);
  if (fd_ >= 0) close(fd_);
}

nghttp2_session_callbacks* LightStream::Callbacks() {
  static nghttp2_session_callbacks* const callbacks = [] {
    nghttp2_session_callbacks* made = nullptr;
    nghttp2_session_callbacks_new(&made);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        made, [](nghttp2_session*, uint8_t, int32_t, const uint8_t* data, size_t size, void* self) {
          static_cast<LightStream*>(self)->incoming_.append(reinterpret_cast<const char*>(data), size);
          return 0;
        });
    nghttp2_session_callbacks_set_on_stream_close_callback(made, [](nghttp2_session*, int32_t, uint32_t, void* self) {
      static_cast<LightStream*>(self)->ended_ = true;
      return 0;
    });
    return made;
  }();
  return callbacks;
}

absl::Status LightStream::Begin(const std::string& address, const std::string& method) {
  int error = nghttp2_session_client_new(&session_, Callbacks(), this);
  if (error == 0) error = nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, nullptr, 0);
  const std::string names[] = {":method", ":scheme", ":path", ":authority", "te", "content-type"};
  const std::string values[] = {"POST", "http", method, address, "trailers", "application/grpc"};
  nghttp2_nv headers[std::size(names)];
  for (size_t i = 0; i < std::size(names); ++i) headers[i] = Header(names[i], values[i]);
  nghttp2_data_provider messages = {};
  messages.read_callback = [](nghttp2_session*, int32_t, uint8_t* buffer, size_t length, uint32_t* flags, nghttp2_data_source*,
                              void* self) { return static_cast<LightStream*>(self)->Give(buffer, length, flags); };
  if (error == 0) stream_ = nghttp2_submit_request(session_, nullptr, headers, std::size(headers), &messages, nullptr);
  if (error != 0 || stream_ < 0) return absl::InternalError(nghttp2_strerror(error != 0 ? error : stream_));
  Send();
  return absl::OkStatus();
}

void LightStream::Write(const google::protobuf::MessageLite& message) {
  if (ended_) return;
  const size_t size = message.ByteSizeLong();
  const uint32_t length = htonl(static_cast<uint32_t>(size));
  outgoing_.push_back(0);  // not compressed
  outgoing_.append(reinterpret_cast<const char*>(&length), sizeof(length));
  message.AppendToString(&outgoing_);
  // Refused where it is sending already.
  nghttp2_session_resume_data(session_, stream_);
  Send();
}

void LightStream::Progress() {
  if (!ended_) Receive();
  if (!ended_) Send();
}

void LightStream::Receive() {
  uint8_t buffer[16 << 10];
  while (true) {
    const ssize_t size = recv(fd_, buffer, sizeof(buffer), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0 || nghttp2_session_mem_recv(session_, buffer, static_cast<size_t>(size)) < 0) ended_ = true;
    // Not while nghttp2 reads: what is told of a message may be to write one.
    Deliver();
    if (ended_) return;
  }
}

void LightStream::Send() {
  while (true) {
    if (unsent_.empty()) {
      const uint8_t* frames = nullptr;
      const ssize_t size = nghttp2_session_mem_send(session_, &frames);
      if (size < 0) ended_ = true;
      if (size <= 0) return;
      unsent_.assign(reinterpret_cast<const char*>(frames), static_cast<size_t>(size));
    }
    const ssize_t sent = send(fd_, unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return;
    if (sent < 0) {
      ended_ = true;
      return;
    }
    unsent_.erase(0, static_cast<size_t>(sent));
  }
}

void LightStream::Deliver() {
  size_t begin = 0;
  while (incoming_.size() - begin >= kPrefixBytes) {
    uint32_t length = 0;
    std::memcpy(&length, incoming_.data() + begin + 1, sizeof(length));
    const size_t end = begin + kPrefixBytes + ntohl(length);
    if (end > incoming_.size()) break;
    on_message_(std::string_view(incoming_).substr(begin + kPrefixBytes, end - begin - kPrefixBytes));
    begin = end;
  }
  incoming_.erase(0, begin);
}

ssize_t LightStream::Give(uint8_t* buffer, size_t length, uint32_t*) {
  const size_t size = std::min(length, outgoing_.size() - taken_);
  if (size == 0) return NGHTTP2_ERR_DEFERRED;
  std::memcpy(buffer, outgoing_.data() + taken_, size);
  taken_ += size;
  if (taken_ == outgoing_.size()) {
    outgoing_.clear();
    taken_ = 0;
  }
  return static_cast<ssize_t>(size);
}

}  // namespace tidetape::server
