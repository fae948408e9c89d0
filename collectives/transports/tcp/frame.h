// What ranks send each other over TCP: frames of a fixed header and, for puts, bytes.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_FRAME_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_FRAME_H_

#include <bit>
#include <cstddef>
#include <cstdint>

namespace tidetape::collectives {

static_assert(std::endian::native == std::endian::little, "headers are sent as they lie in memory");

enum class FrameType : uint32_t {
  // `bytes` bytes follow, for `offset` of the receiver's arena. Raises `signal` when they are placed, unless negative.
  kPut = 1,
  // The sender counts its chunks: answer with kAck when this one is placed.
  kCountedPut = 2,
  // `bytes` counted puts more were placed.
  kAck = 3,
  // The last frame of a sender that leaves; `signal` is the rank for whose loss it leaves, or -1.
  kGoodbye = 4,
  // All up to the goodbye was placed, and nothing more will come.
  kGoodbyeAck = 5,
};

inline bool CarriesBytes(FrameType type) { return type == FrameType::kPut || type == FrameType::kCountedPut; }

struct FrameHeader {
  static constexpr uint32_t kMagic = 0x74746631;  // "ttf1"

  uint32_t magic = kMagic;
  FrameType type = FrameType::kPut;
  int32_t signal = -1;
  uint32_t reserved = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};
static_assert(sizeof(FrameHeader) == 32);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_FRAME_H_
