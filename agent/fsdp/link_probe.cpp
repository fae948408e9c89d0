#include "agent/fsdp/link_probe.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "absl/time/clock.h"

namespace tidetape::agent {
namespace {

using collectives::Pacing;
using collectives::Transport;

constexpr uint64_t kPieceBytes = 64 << 10;  // of one put
constexpr int kRounds = 16;                 // of small messages, in each of kBatches
constexpr int kBatches = 4;
constexpr int kBursts = 2;  // for each window
constexpr double kBurstSeconds = 0.03;
constexpr int64_t kLeastBurst = 512 << 10, kMostBurst = 8 << 20;
constexpr int64_t kWindows[] = {64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 0};

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class Ring {
 public:
  Ring(Transport& transport, const ProbeOptions& options, int next, int previous)
      : transport_(transport),
        options_(options),
        next_(next),
        previous_(previous),
        zeros_(std::min(kPieceBytes, options.scratch_bytes)) {}

  absl::StatusOr<ProbedLink> Probe(bool with_windows) {
    if (absl::Status status = TimeSmallMessages(); !status.ok()) return status;
    int64_t burst_bytes = kLeastBurst / 2;
    for (int i = 0; i < kBursts; ++i) {
      if (absl::Status status = TimeBurst(burst_bytes, link_.bytes_per_second); !status.ok()) return status;
    }
    burst_bytes = std::clamp(static_cast<int64_t>(link_.bytes_per_second * kBurstSeconds), kLeastBurst, kMostBurst);
    for (const int64_t window : kWindows) {
      if (!with_windows && window != 0) continue;
      if (with_windows) options_.set_pacing(PacingOf(window));
      // A burst that fits the window says nothing of it. It is sent all the same: all ranks go through the same rounds.
      const bool fits = window >= burst_bytes / 2;
      double best = 0;
      for (int i = 0; i < kBursts; ++i) {
        if (absl::Status status = TimeBurst(fits ? kLeastBurst / 8 : burst_bytes, best); !status.ok()) return status;
      }
      if (fits) continue;
      link_.windows.push_back({window, best});
      link_.bytes_per_second = std::max(link_.bytes_per_second, best);
    }
    return link_;
  }

 private:
  static Pacing PacingOf(int64_t window) {
    Pacing pacing;
    if (window == 0) return pacing;
    pacing.chunk_bytes = std::min<uint64_t>(kPieceBytes, static_cast<uint64_t>(window) / 2);
    pacing.chunks_in_flight = static_cast<int>(static_cast<uint64_t>(window) / pacing.chunk_bytes);
    return pacing;
  }

  absl::Time Deadline() const { return absl::Now() + options_.wait_limit; }
  int Signal(int which) const { return options_.first_signal + which; }
  absl::Status Put(uint64_t bytes, int which) {
    return transport_.PutSignal(next_, absl::MakeConstSpan(zeros_).subspan(0, bytes), 0, Signal(which));
  }

  absl::Status TimeSmallMessages() {
    double least = std::numeric_limits<double>::infinity();
    link_.put_seconds = least;
    for (int batch = 0; batch < kBatches; ++batch) {
      double putting = 0;
      const double start = Now();
      for (int i = 0; i < kRounds; ++i) {
        const double before = Now();
        if (absl::Status status = Put(sizeof(int64_t), kDone); !status.ok()) return status;
        putting += Now() - before;
        if (absl::Status status = transport_.WaitSignal(previous_, Signal(kDone), 1, Deadline()); !status.ok()) return status;
      }
      least = std::min(least, (Now() - start) / kRounds);
      link_.put_seconds = std::min(link_.put_seconds, putting / kRounds);
    }
    link_.latency_seconds = std::max(0.0, least - link_.put_seconds);
    return transport_.Flush(Deadline());
  }

  // Raises `best` to the rate of a burst.
  absl::Status TimeBurst(int64_t bytes, double& best) {
    const double start = Now();
    for (int64_t left = bytes; left > 0;) {
      const int64_t piece = std::min<int64_t>(left, static_cast<int64_t>(zeros_.size()));
      left -= piece;
      if (absl::Status status = Put(static_cast<uint64_t>(piece), left > 0 ? kFill : kDone); !status.ok()) return status;
    }
    if (absl::Status status = transport_.WaitSignal(previous_, Signal(kDone), 1, Deadline()); !status.ok()) return status;
    if (absl::Status status = transport_.Signal(previous_, Signal(kAnswer)); !status.ok()) return status;
    if (absl::Status status = transport_.WaitSignal(next_, Signal(kAnswer), 1, Deadline()); !status.ok()) return status;
    const double seconds = Now() - start;
    // At least half of it is the transfer, however well the latency is known.
    best = std::max(best, static_cast<double>(bytes) / std::max(seconds / 2, seconds - 2 * link_.latency_seconds));
    return transport_.Flush(Deadline());
  }

  enum : int { kFill, kDone, kAnswer };  // nobody waits for the first

  Transport& transport_;
  const ProbeOptions& options_;
  const int next_, previous_;
  const std::vector<std::byte> zeros_;
  ProbedLink link_;
};

}  // namespace

absl::StatusOr<ProbedLinks> ProbeLinks(Transport& transport, const ProbeOptions& options) {
  const int per_host = options.per_host, hosts = transport.size() / per_host;
  const int host = transport.rank() / per_host, local = transport.rank() % per_host;
  ProbedLinks links;
  if (options.scratch_bytes < sizeof(int64_t)) return links;
  if (per_host > 1) {
    const auto on_host = [&](int other) { return host * per_host + (other + per_host) % per_host; };
    absl::StatusOr<ProbedLink> link = Ring(transport, options, on_host(local + 1), on_host(local - 1)).Probe(false);
    if (!link.ok()) return link.status();
    links.local = *std::move(link);
  }
  if (hosts > 1) {
    const auto along_rail = [&](int other) { return (other + hosts) % hosts * per_host + local; };
    absl::StatusOr<ProbedLink> link =
        Ring(transport, options, along_rail(host + 1), along_rail(host - 1)).Probe(options.set_pacing != nullptr);
    if (!link.ok()) return link.status();
    links.network = *std::move(link);
  }
  return links;
}

}  // namespace tidetape::agent
