#include "collectives/transports/tcp/send_queue.h"

#include <algorithm>
#include <utility>

namespace tidetape::collectives {
namespace {

// Frames are handed to the kernel together up to these bounds, so that small ones share a system call and control frames do not
// wait for long behind large ones.
constexpr size_t kMostFrames = 32;
constexpr uint64_t kMostBytes = 256 << 10;

}  // namespace

SendQueue::SendQueue(size_t most_puts, const Pacing& pacing) : most_puts_(most_puts), pacing_(pacing) {}

uint64_t SendQueue::Push(absl::Span<const std::byte> source, uint64_t offset, int signal) {
  puts_.push_back({source, offset, signal});
  return ++pushed_;
}

void SendQueue::PushGoodbye(int lost_rank) {
  goodbye_ = true;
  goodbye_header_ = {.type = FrameType::kGoodbye, .signal = lost_rank};
}

void SendQueue::Drop() {
  puts_.clear();
  // The frame in hand must be finished, or the peer could not read what comes after it. Its source must stay until then.
  const bool in_hand = !frames_.empty() && frames_.front().sent > 0;
  const auto first = frames_.begin() + (in_hand ? 1 : 0);
  frames_.erase(std::remove_if(first, frames_.end(), [](const Frame& frame) { return CarriesBytes(frame.header.type); }),
                frames_.end());
  dropped_ = in_hand;
  if (!in_hand) taken_ = pushed_;
}

bool SendQueue::MayStartChunk(absl::Time now) const {
  if (pacing_.chunks_in_flight > 0 && in_flight_ >= static_cast<uint64_t>(pacing_.chunks_in_flight)) return false;
  if (pacing_.gap <= absl::ZeroDuration()) return true;
  // The gap counts from the end of the chunk before, so that one must be gone.
  const bool sending = std::any_of(frames_.begin(), frames_.end(), [](const Frame& frame) { return !frame.bytes.empty(); });
  return !sending && now >= next_chunk_;
}

void SendQueue::Prepare(absl::Time now) {
  if (acks_ > 0) control_.push_back({.type = FrameType::kAck, .bytes = std::exchange(acks_, 0)});
  for (; !control_.empty(); control_.pop_front()) frames_.push_back({.header = control_.front()});
  uint64_t bytes = 0;
  for (const Frame& frame : frames_) bytes += frame.bytes.size();
  while (!puts_.empty() && frames_.size() < kMostFrames && bytes < kMostBytes) {
    Put& put = puts_.front();
    if (!put.rest.empty() && !MayStartChunk(now)) return;
    const size_t chunk = std::min<uint64_t>(put.rest.size(), std::max<uint64_t>(1, pacing_.chunk_bytes));
    const bool last = chunk == put.rest.size();
    const bool counted = chunk > 0 && pacing_.chunks_in_flight > 0;
    Frame frame;
    frame.header.type = counted ? FrameType::kCountedPut : FrameType::kPut;
    frame.header.signal = last ? put.signal : -1;
    frame.header.offset = put.offset;
    frame.header.bytes = chunk;
    frame.bytes = put.rest.subspan(0, chunk);
    frame.ends_put = last;
    frames_.push_back(frame);
    bytes += chunk;
    if (counted) ++in_flight_;
    put.rest.remove_prefix(chunk);
    put.offset += chunk;
    if (last) puts_.pop_front();
  }
  if (goodbye_ && puts_.empty()) {
    frames_.push_back({.header = goodbye_header_});
    goodbye_ = false;
  }
}

absl::Span<const iovec> SendQueue::Next(absl::Time now) {
  Prepare(now);
  parts_.clear();
  for (Frame& frame : frames_) {
    if (frame.sent < sizeof(FrameHeader)) {
      parts_.push_back({reinterpret_cast<std::byte*>(&frame.header) + frame.sent, sizeof(FrameHeader) - frame.sent});
    }
    const size_t sent = frame.sent < sizeof(FrameHeader) ? 0 : frame.sent - sizeof(FrameHeader);
    if (sent < frame.bytes.size()) parts_.push_back({const_cast<std::byte*>(frame.bytes.data()) + sent, frame.bytes.size() - sent});
  }
  return parts_;
}

void SendQueue::Sent(size_t bytes, absl::Time now) {
  while (bytes > 0 || (!frames_.empty() && frames_.front().sent == sizeof(FrameHeader) + frames_.front().bytes.size())) {
    Frame& frame = frames_.front();
    const size_t whole = sizeof(FrameHeader) + frame.bytes.size();
    const size_t part = std::min(bytes, whole - frame.sent);
    frame.sent += part;
    bytes -= part;
    if (frame.sent < whole) return;
    if (frame.ends_put) ++taken_;
    if (std::exchange(dropped_, false)) taken_ = pushed_;
    if (!frame.bytes.empty()) next_chunk_ = now + pacing_.gap;
    frames_.pop_front();
  }
}

absl::Time SendQueue::NextTime() const {
  if (!frames_.empty() || acks_ > 0 || !control_.empty()) return absl::InfinitePast();
  if (puts_.empty()) return goodbye_ ? absl::InfinitePast() : absl::InfiniteFuture();
  if (puts_.front().rest.empty()) return absl::InfinitePast();
  if (pacing_.chunks_in_flight > 0 && in_flight_ >= static_cast<uint64_t>(pacing_.chunks_in_flight)) return absl::InfiniteFuture();
  return pacing_.gap > absl::ZeroDuration() ? next_chunk_ : absl::InfinitePast();
}

}  // namespace tidetape::collectives
