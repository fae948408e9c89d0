// Small records that ranks exchange before a reduction, in a part of the arena of their own.
//
// Each rank has two places for records of each other rank and uses them in turn. Two are enough: a rank sends its record k + 2 only
// after it has read the peer's record k + 1, which the peer sent after it had read record k.
#ifndef TIDETAPE_AGENT_FSDP_NOTICE_BOARD_H_
#define TIDETAPE_AGENT_FSDP_NOTICE_BOARD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "collectives/transport.h"

namespace tidetape::agent {

class NoticeBoard {
 public:
  // Records of at most `record_bytes`, from `offset` of the arena on, with a signal index that nothing else uses.
  NoticeBoard(collectives::Transport& transport, uint64_t offset, uint64_t record_bytes, int32_t signal)
      : transport_(transport), offset_(offset), stride_(Stride(record_bytes)), signal_(signal), exchanged_(transport.size()) {}

  static uint64_t Bytes(uint64_t record_bytes, int32_t ranks) { return Stride(record_bytes) * 2 * static_cast<uint64_t>(ranks); }

  // Sends `record` to each of `peers` and returns theirs, in that order; for the own rank the own one. All of them must call it
  // with each other, and with records of the same size.
  absl::StatusOr<std::vector<std::string>> Exchange(absl::Span<const int32_t> peers, const std::string& record,
                                                    absl::Time deadline);

 private:
  static uint64_t Stride(uint64_t record_bytes) { return (record_bytes + 63) / 64 * 64; }
  uint64_t Place(int32_t sender, uint64_t turn) const { return offset_ + (2 * static_cast<uint64_t>(sender) + turn % 2) * stride_; }

  collectives::Transport& transport_;
  const uint64_t offset_;
  const uint64_t stride_;
  const int32_t signal_;
  std::vector<uint64_t> exchanged_;  // with each peer
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_FSDP_NOTICE_BOARD_H_
