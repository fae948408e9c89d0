#include "agent/fsdp/notice_board.h"

namespace tidetape::agent {

absl::StatusOr<std::vector<std::string>> NoticeBoard::Exchange(absl::Span<const int32_t> peers, const std::string& record,
                                                               absl::Time deadline) {
  const int32_t self = transport_.rank();
  const auto* source = reinterpret_cast<const std::byte*>(record.data());
  for (int32_t peer : peers) {
    if (peer == self) continue;
    if (absl::Status status = transport_.PutSignal(peer, {source, record.size()}, Place(self, exchanged_[peer]), signal_);
        !status.ok()) {
      return status;
    }
  }
  std::vector<std::string> records;
  records.reserve(peers.size());
  for (int32_t peer : peers) {
    if (peer == self) {
      records.push_back(record);
      continue;
    }
    if (absl::Status status = transport_.WaitSignal(peer, signal_, 1, deadline); !status.ok()) return status;
    const auto bytes = transport_.arena().subspan(Place(peer, exchanged_[peer]++), record.size());
    records.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  if (absl::Status status = transport_.Flush(deadline); !status.ok()) return status;
  return records;
}

}  // namespace tidetape::agent
