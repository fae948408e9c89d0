#include "collectives/transports/tcp/frame_reader.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace tidetape::collectives {
absl::Status FrameReader::CheckHeader() const {
  if (header_.magic != FrameHeader::kMagic || header_.type < FrameType::kPut || header_.type > FrameType::kGoodbyeAck) {
    return absl::DataLossError("sent bytes that are no frame");
  }
  if (!CarriesBytes(header_.type)) return absl::OkStatus();
  if (header_.offset > arena_.size() || header_.bytes > arena_.size() - header_.offset || header_.signal >= signals_) {
    return absl::DataLossError(absl::StrCat("sent a put outside the arena: offset ", header_.offset, ", ", header_.bytes,
                                            " bytes, signal ", header_.signal));
  }
  return absl::OkStatus();
}

absl::Span<const iovec> FrameReader::Next() {
  parts_[1] = {buffer_.data(), buffer_.size()};
  if (header_bytes_ < sizeof(FrameHeader)) return absl::MakeConstSpan(parts_).subspan(1);
  parts_[0] = {arena_.data() + header_.offset + bytes_placed_, header_.bytes - bytes_placed_};
  return parts_;
}

absl::Status FrameReader::Received(size_t bytes, absl::FunctionRef<void(const FrameHeader&)> frame) {
  size_t direct = 0;
  if (header_bytes_ == sizeof(FrameHeader)) {
    direct = std::min<uint64_t>(bytes, header_.bytes - bytes_placed_);
    bytes_placed_ += direct;
  }
  absl::Span<const std::byte> rest(buffer_.data(), bytes - direct);
  while (true) {
    if (header_bytes_ < sizeof(FrameHeader)) {
      const size_t part = std::min(rest.size(), sizeof(FrameHeader) - header_bytes_);
      if (part > 0) std::memcpy(reinterpret_cast<std::byte*>(&header_) + header_bytes_, rest.data(), part);
      rest.remove_prefix(part);
      header_bytes_ += part;
      if (header_bytes_ < sizeof(FrameHeader)) return absl::OkStatus();
      if (absl::Status status = CheckHeader(); !status.ok()) return status;
      bytes_placed_ = 0;
    }
    if (CarriesBytes(header_.type)) {
      const size_t part = std::min<uint64_t>(rest.size(), header_.bytes - bytes_placed_);
      if (part > 0) std::memcpy(arena_.data() + header_.offset + bytes_placed_, rest.data(), part);
      rest.remove_prefix(part);
      bytes_placed_ += part;
      if (bytes_placed_ < header_.bytes) return absl::OkStatus();
    }
    frame(header_);
    header_bytes_ = 0;
  }
}

}  // namespace tidetape::collectives
