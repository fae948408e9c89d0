// Turns a peer's byte stream back into puts and signals. Knows no socket.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_FRAME_READER_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_FRAME_READER_H_

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "collectives/transports/tcp/frame.h"

namespace tidetape::collectives {

// Large bytes are read to their final place; only headers, and small bytes that come with them, pass through a buffer. Not
// thread-safe.
class FrameReader {
 public:
  // Puts go to `arena`; `signals` bounds their signal indices.
  FrameReader(absl::Span<std::byte> arena, int signals) : arena_(arena), signals_(signals) {}

  // Where the next bytes of the stream belong, in order. Valid until Received.
  absl::Span<const iovec> Next();

  // `bytes` bytes were read there. Calls `frame` for each frame that is complete, with its bytes placed, in order. Not OK where the
  // stream is no stream of frames, or a put reaches outside the arena; nothing may be read after that.
  absl::Status Received(size_t bytes, absl::FunctionRef<void(const FrameHeader&)> frame);

 private:
  absl::Status CheckHeader() const;

  const absl::Span<std::byte> arena_;
  const int signals_;
  FrameHeader header_;         // in hand while header_bytes_ is all of it
  size_t header_bytes_ = 0;    // read of header_
  uint64_t bytes_placed_ = 0;  // of the frame in hand
  std::array<iovec, 2> parts_ = {};
  std::array<std::byte, 16 << 10> buffer_;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_FRAME_READER_H_
