#include "planner/pacing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"

namespace tidetape::planner {
namespace {

bool IsPowerOfTwo(int32_t n) { return (n & (n - 1)) == 0; }

int32_t Log2(int32_t n) {
  int32_t log = 0;
  while (n > 1) {
    n /= 2;
    ++log;
  }
  return log;
}

absl::Status CheckRates(const char* name, const std::optional<LinkRates>& rates) {
  if (!rates.has_value()) return absl::OkStatus();
  const auto positive = [](double value) { return std::isfinite(value) && value > 0; };
  const auto not_negative = [](double value) { return std::isfinite(value) && value >= 0; };
  if (!positive(rates->bytes_per_second)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ".bytes_per_second is ", rates->bytes_per_second, ", must be finite and positive"));
  }
  if (!not_negative(rates->latency_seconds)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ".latency_seconds is ", rates->latency_seconds, ", must be finite and not negative"));
  }
  if (!not_negative(rates->put_seconds)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ".put_seconds is ", rates->put_seconds, ", must be finite and not negative"));
  }
  for (const WindowRate& seen : rates->windows) {
    if (seen.window_bytes < 0 || !not_negative(seen.bytes_per_second)) {
      return absl::InvalidArgumentError(absl::StrCat(name, ".windows has ", seen.window_bytes, " bytes at ", seen.bytes_per_second,
                                                     " bytes/s; neither may be negative"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLinks(const LinkReport& links) {
  if (links.ranks < 1 || links.hosts < 1 || links.ranks % links.hosts != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("ranks is ", links.ranks, " and hosts is ", links.hosts, ", must be equally many ranks on each host"));
  }
  if (links.hosts > 1 && !links.network.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("network is missing, and there are ", links.hosts, " hosts"));
  }
  if (!std::isfinite(links.compute_seconds) || links.compute_seconds < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("compute_seconds is ", links.compute_seconds, ", must be finite and not negative"));
  }
  for (const PacedUnits& units : links.units) {
    if (units.gathered_bytes < 0 || units.count < 1) {
      return absl::InvalidArgumentError(absl::StrCat("units has ", units.count, " of ", units.gathered_bytes,
                                                     " bytes; there must be at least one, and bytes must not be negative"));
    }
  }
  if (absl::Status status = CheckRates("local", links.local); !status.ok()) return status;
  return CheckRates("network", links.network);
}

// A shard in messages over one link.
struct Train {
  double chunks = 1;
  double flight = 0;  // o + t + a: one chunk alone
  double period = 0;  // between two chunks that follow each other
  double transfer = 0;
};

Train TrainOf(const LinkRates& link, double shard_bytes, int64_t chunk_bytes) {
  const double chunks = std::max(1.0, std::ceil(shard_bytes / static_cast<double>(chunk_bytes)));
  const double transfer = shard_bytes / chunks / link.bytes_per_second;
  return {chunks, link.put_seconds + transfer + link.latency_seconds, std::max(link.put_seconds, transfer), transfer};
}

// The network's rate as far as the chosen window lets it be.
struct Bounds {
  int64_t window_bytes = 0;  // 0: none
  double bytes_per_second = 0;
};

Bounds BoundsOf(const LinkRates& link) {
  double best = 0, unbounded = -1;
  for (const WindowRate& seen : link.windows) {
    best = std::max(best, seen.bytes_per_second);
    if (seen.window_bytes == 0) unbounded = seen.bytes_per_second;
  }
  if (unbounded < 0 || unbounded >= kStallRatio * best) return {0, link.bytes_per_second};
  int64_t window = std::numeric_limits<int64_t>::max();
  for (const WindowRate& seen : link.windows) {
    if (seen.window_bytes > 0 && seen.bytes_per_second >= (1 - kRateTolerance) * best) window = std::min(window, seen.window_bytes);
  }
  return {window, std::min(best, link.bytes_per_second)};
}

double TotalBytes(const LinkReport& links) {
  double total = 0;
  for (const PacedUnits& units : links.units) total += static_cast<double>(units.gathered_bytes) * units.count;
  return total;
}

// What a step pays for its gathers, each unit twice, and the compute that runs beside one of them.
struct Cost {
  double gather_seconds = 0;
  double paid_seconds = 0;
};

double ComputeBeside(const LinkReport& links, int64_t gathered_bytes, double total_bytes) {
  if (total_bytes == 0) return 0;
  return links.compute_seconds / 2 * static_cast<double>(gathered_bytes) / total_bytes;
}

Cost CostOf(const LinkReport& links, GatherAlgorithm algorithm, int64_t chunk_bytes) {
  const double total = TotalBytes(links);
  Cost cost;
  for (const PacedUnits& units : links.units) {
    const double seconds = GatherSeconds(links, units.gathered_bytes, algorithm, chunk_bytes);
    const double shard = static_cast<double>(units.gathered_bytes) / links.ranks;
    double own_seconds = 0;
    if (links.hosts > 1)
      own_seconds = (links.hosts - 1) * TrainOf(*links.network, shard, chunk_bytes).chunks * links.network->put_seconds;
    cost.gather_seconds += units.count * seconds;
    cost.paid_seconds += units.count * (own_seconds + std::max(0.0, seconds - ComputeBeside(links, units.gathered_bytes, total)));
  }
  return cost;
}

void MergeRates(const std::optional<LinkRates>& from, std::optional<LinkRates>& to) {
  if (!from.has_value()) return;
  if (!to.has_value()) {
    to = from;
    return;
  }
  to->bytes_per_second = std::min(to->bytes_per_second, from->bytes_per_second);
  to->latency_seconds = std::max(to->latency_seconds, from->latency_seconds);
  to->put_seconds = std::max(to->put_seconds, from->put_seconds);
  for (const WindowRate& seen : from->windows) {
    const auto same = std::find_if(to->windows.begin(), to->windows.end(),
                                   [&seen](const WindowRate& known) { return known.window_bytes == seen.window_bytes; });
    if (same == to->windows.end()) {
      to->windows.push_back(seen);
    } else {
      same->bytes_per_second = std::min(same->bytes_per_second, seen.bytes_per_second);
    }
  }
}

}  // namespace

absl::StatusOr<LinkReport> MergeLinks(const std::vector<LinkReport>& ranks) {
  if (ranks.empty()) return absl::InvalidArgumentError("links of no rank");
  LinkReport merged = ranks.front();
  std::vector<double> compute;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const LinkReport& rank = ranks[i];
    if (absl::Status status = CheckLinks(rank); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("links of report ", i, ": ", status.message()));
    }
    if (rank.ranks != merged.ranks || rank.hosts != merged.hosts || TotalBytes(rank) != TotalBytes(merged)) {
      return absl::InvalidArgumentError(
          absl::StrCat("links of report ", i, ": ", rank.ranks, " ranks on ", rank.hosts, " hosts gather ", TotalBytes(rank),
                       " bytes, those of report 0: ", merged.ranks, " on ", merged.hosts, ", ", TotalBytes(merged)));
    }
    compute.push_back(rank.compute_seconds);
    if (i == 0) continue;
    MergeRates(rank.local, merged.local);
    MergeRates(rank.network, merged.network);
  }
  std::nth_element(compute.begin(), compute.begin() + compute.size() / 2, compute.end());
  merged.compute_seconds = compute[compute.size() / 2];
  return merged;
}

double GatherSeconds(const LinkReport& links, int64_t gathered_bytes, GatherAlgorithm algorithm, int64_t chunk_bytes) {
  const double n = links.hosts, l = links.ranks / links.hosts;
  const double shard = static_cast<double>(gathered_bytes) / links.ranks;
  double rail = 0;
  if (links.hosts > 1) {
    const Train train = TrainOf(*links.network, shard, chunk_bytes);
    if (algorithm == GatherAlgorithm::kRecursiveDoubling && IsPowerOfTwo(links.hosts)) {
      const double rounds = Log2(links.hosts);
      rail = rounds * train.flight + ((n - 1) * train.chunks - rounds) * train.period;
    } else {
      rail = (n - 2) * std::max(train.chunks * train.period, train.flight) + train.flight + (train.chunks - 1) * train.period;
    }
  }
  if (l == 1 || !links.local.has_value()) return rail;
  const Train train = TrainOf(*links.local, shard, chunk_bytes);
  // The last chunk's messages are seen in full; those before it lie beside the rail, or hold it up. The rank that is last in the
  // order of all others receives l - 1 of them at once.
  const double last = (l - 1) * train.period + train.flight - train.period + (l - 2) * train.transfer;
  return std::max(rail, (n * train.chunks - 1) * (l - 1) * train.period) + last;
}

absl::StatusOr<PacingPlan> PlanPacing(const PacingProblem& problem) {
  if (absl::Status status = CheckLinks(problem.links); !status.ok()) return status;
  LinkReport links = problem.links;
  PacingPlan plan;
  int64_t most_chunk = kMostChunkBytes;
  Bounds bounds;
  if (links.hosts > 1) {
    bounds = BoundsOf(*links.network);
    links.network->bytes_per_second = bounds.bytes_per_second;
    if (bounds.window_bytes > 0) most_chunk = std::clamp(bounds.window_bytes / kChunksOfWindow, kLeastChunkBytes, kMostChunkBytes);
  }
  double least = std::numeric_limits<double>::infinity();
  for (const GatherAlgorithm algorithm : {GatherAlgorithm::kRecursiveDoubling, GatherAlgorithm::kRing}) {
    if (algorithm == GatherAlgorithm::kRecursiveDoubling && !IsPowerOfTwo(links.hosts)) continue;
    if (algorithm == GatherAlgorithm::kRing && links.hosts <= 2 && IsPowerOfTwo(links.hosts)) continue;  // the same messages
    // From the largest down, so that of equal ones the largest stays.
    for (int64_t chunk = kMostChunkBytes; chunk >= kLeastChunkBytes; chunk /= 2) {
      if (chunk > most_chunk) continue;
      const Cost cost = CostOf(links, algorithm, chunk);
      if (cost.paid_seconds >= least * (1 - 1e-9)) continue;
      least = cost.paid_seconds;
      plan.algorithm = algorithm;
      plan.chunk_bytes = chunk;
      plan.gather_seconds = cost.gather_seconds;
    }
  }
  if (bounds.window_bytes > 0) {
    const LinkRates& network = *problem.links.network;
    const double transfer = static_cast<double>(plan.chunk_bytes) / network.bytes_per_second;
    if (bounds.bytes_per_second < kStallRatio * network.bytes_per_second) {
      plan.chunk_gap_seconds = transfer;
    } else {
      plan.puts_in_flight = static_cast<int32_t>(std::clamp<int64_t>(bounds.window_bytes / plan.chunk_bytes, 1, kMostPutsInFlight));
    }
  }

  const double total = TotalBytes(links);
  int64_t largest = 0;
  double depth = 1;
  for (const PacedUnits& units : links.units) {
    largest = std::max(largest, units.gathered_bytes);
    const double seconds = GatherSeconds(links, units.gathered_bytes, plan.algorithm, plan.chunk_bytes);
    const double beside = ComputeBeside(links, units.gathered_bytes, total);
    if (beside > 0) depth = std::max(depth, std::ceil(seconds / beside));
  }
  // More than one unit ahead only where its slot fits, and never more than hides anything.
  const double room =
      largest == 0 ? 0 : static_cast<double>(std::max<int64_t>(0, problem.memory_free_bytes)) / static_cast<double>(largest);
  plan.prefetch_depth = static_cast<int32_t>(std::clamp(depth, 1.0, std::clamp(1 + std::floor(room), 1.0, 4.0)));
  if (links.local.has_value()) {
    // A slot on its way, one being added, and as many as a message's latency covers.
    const double transfer = static_cast<double>(plan.chunk_bytes) / links.local->bytes_per_second;
    plan.staging_slots = static_cast<int32_t>(std::clamp(2 + std::floor(2 * links.local->latency_seconds / transfer), 2.0, 16.0));
  }
  plan.slot_reuse = problem.memory_free_bytes < largest;
  return plan;
}

bool WorthSwitching(const PacingProblem& problem, const PacingPlan& in_force, const PacingPlan& plan) {
  constexpr double kWorth = 0.05;
  const auto window = [](const PacingPlan& pacing) -> int64_t {
    return pacing.puts_in_flight == kMostPutsInFlight ? 0 : pacing.puts_in_flight * pacing.chunk_bytes;
  };
  const bool bounded = window(plan) > 0 || plan.chunk_gap_seconds > 0;
  const bool was_bounded = window(in_force) > 0 || in_force.chunk_gap_seconds > 0;
  if (bounded != was_bounded) return true;
  // Half or twice the window is more than a probe's own scatter.
  if (bounded && (window(plan) > 2 * window(in_force) || 2 * window(plan) < window(in_force))) return true;
  if (plan.chunk_gap_seconds > 2 * in_force.chunk_gap_seconds || 2 * plan.chunk_gap_seconds < in_force.chunk_gap_seconds)
    return true;
  const Cost now = CostOf(problem.links, in_force.algorithm, in_force.chunk_bytes);
  const Cost then = CostOf(problem.links, plan.algorithm, plan.chunk_bytes);
  return now.paid_seconds - then.paid_seconds > kWorth * now.gather_seconds;
}

}  // namespace tidetape::planner
