// How FSDP's collectives pace themselves, from what the ranks measured of their links. Pure functions; safe from any thread.
//
// The model. A message of m bytes takes o + a + m/B: o the sender's own time, a the latency, B the rate (LogGP: Alexandrov,
// Ionescu, Schauser, Scheiman, "LogGP", 1995, with o and g as one). A unit of G bytes over n hosts with l ranks each has shards of
// b = G / (n l) bytes, sent along the rail in k = ceil(b / c) chunks of at most c bytes. With t = b / (k B), p = max(o, t) and
// r = log2(n), until the last shard has come:
//
//   recursive doubling   r (o + t + a) + ((n - 1) k - r) p              each of r rounds waits for the one before
//   ring                 (n - 2) max(k p, o + t + a) + o + t + a + (k - 1) p   a chunk is handed on as the next one comes
//
// Both move (n - 1) b bytes a rank, the least there is, and differ in what they wait for: Thakur, Rabenseifner, Gropp,
// "Optimization of Collective Communication Operations in MPICH" (2005), section 4.1, whose ring does not cut shards. Within a
// host, what has come is handed on in n k (l - 1) messages, beside the rail; the last chunk's are seen in full, and those that meet
// at one rank, too. collectives/simulator runs the schedules themselves under the same assumptions; the test compares.
//
// What a step pays for a unit is the part of this that the compute beside does not cover, and the sender's time of its puts, which
// the training thread spends. Chunks are powers of two; all are tried.
//
// Bounds on what is in flight. The ranks saw a rate for each number of bytes in flight. A link with a deep queue is fastest, or as
// fast, without a bound (kStallRatio); where a queue overran, the rate falls beyond some window. Then the smallest window within
// kRateTolerance of the best rate is taken, and cut into kChunksOfWindow chunks, so that some are on their way while one is
// answered. A window that fills no round trip, B (2 a + t) bytes, cannot reach B: where the best rate stays below kStallRatio of
// it, chunks are kept t apart instead, which keeps the queue empty at the link's own rate.
#ifndef TIDETAPE_PLANNER_PACING_H_
#define TIDETAPE_PLANNER_PACING_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

namespace tidetape::planner {

// The rate that was seen with so many bytes in flight to one peer.
struct WindowRate {
  int64_t window_bytes = 0;  // 0: no bound
  double bytes_per_second = 0;
};

// A message between two ranks, in one direction.
struct LinkRates {
  double bytes_per_second = 0;  // of a burst that no queue was overrun by
  double latency_seconds = 0;
  double put_seconds = 0;           // of the sender, before it can go on
  std::vector<WindowRate> windows;  // may be empty: nothing was seen to fall
};

// Units of one size.
struct PacedUnits {
  int64_t gathered_bytes = 0;
  int32_t count = 1;
};

// What one rank measured, and what all ranks have alike.
struct LinkReport {
  int32_t ranks = 1;
  int32_t hosts = 1;  // equally many ranks on each
  std::optional<LinkRates> local;
  std::optional<LinkRates> network;
  std::vector<PacedUnits> units;
  double compute_seconds = 0;  // of a step, outside collectives
};

struct PacingProblem {
  LinkReport links;               // all ranks merged
  int64_t memory_free_bytes = 0;  // below the limit at the step's peak
};

enum class GatherAlgorithm : uint8_t { kRecursiveDoubling = 1, kRing = 2 };

// As the message of this name; prefetch depth, staging slots and slot reuse need an arena that was laid out for them.
struct PacingPlan {
  GatherAlgorithm algorithm = GatherAlgorithm::kRecursiveDoubling;  // between hosts
  int64_t chunk_bytes = 1 << 20;
  int32_t puts_in_flight = 256;  // per peer; 256: no bound but the transport's
  double chunk_gap_seconds = 0;
  int32_t prefetch_depth = 1;  // units gathered ahead of their use
  int32_t staging_slots = 2;
  bool slot_reuse = false;
  double gather_seconds = 0;  // of all units, as predicted
  bool operator==(const PacingPlan&) const = default;
};

// A window within this share of the best rate is as good as the best.
inline constexpr double kRateTolerance = 0.02;
// An unbounded sender that gets this share of the best rate has overrun nothing: a stall costs more, and a short probe is off by
// less.
inline constexpr double kStallRatio = 0.9;
inline constexpr int64_t kChunksOfWindow = 4;
inline constexpr int32_t kMostPutsInFlight = 256;
inline constexpr int64_t kLeastChunkBytes = 16 << 10;
inline constexpr int64_t kMostChunkBytes = 4 << 20;

// The worst link of any rank: the least rate, the largest latency and sender's time, window by window; the median of compute.
// InvalidArgument where ranks do not agree on what all have alike.
absl::StatusOr<LinkReport> MergeLinks(const std::vector<LinkReport>& ranks);

// Until one unit is gathered, by the formulas above. `chunk_bytes` is at least 1.
double GatherSeconds(const LinkReport& links, int64_t gathered_bytes, GatherAlgorithm algorithm, int64_t chunk_bytes);

// InvalidArgument with the field where a figure is missing, negative or not finite.
absl::StatusOr<PacingPlan> PlanPacing(const PacingProblem& problem);

// Whether `plan` is worth a switch from `in_force` under this problem: what it is predicted to save exceeds 5 % of the gathers'
// time, or the window in force lets a queue overrun.
bool WorthSwitching(const PacingProblem& problem, const PacingPlan& in_force, const PacingPlan& plan);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_PACING_H_
