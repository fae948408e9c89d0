// What the bodies of transport tests send and check.
#ifndef TIDETAPE_COLLECTIVES_TESTING_RANK_TRAFFIC_H_
#define TIDETAPE_COLLECTIVES_TESTING_RANK_TRAFFIC_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "collectives/testing/rank_checks.h"
#include "collectives/transport.h"

namespace tidetape::collectives {

using Bytes = std::vector<std::byte>;

inline constexpr int kLastSignal = 15;

inline absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

// Bytes that depend on all of (seed, position).
inline Bytes Pattern(uint64_t seed, size_t bytes) {
  Bytes pattern(bytes);
  std::minstd_rand random(static_cast<uint32_t>(seed * 2654435761u + 1));
  for (std::byte& byte : pattern) byte = static_cast<std::byte>(random() >> 7);
  return pattern;
}

inline bool Equal(absl::Span<const std::byte> a, absl::Span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// Returns when all ranks have called it.
inline absl::Status Barrier(Transport& transport) {
  for (int peer = 0; peer < transport.size(); ++peer) CONTRACT_OK(transport.Signal(peer, kLastSignal));
  for (int peer = 0; peer < transport.size(); ++peer) CONTRACT_OK(transport.WaitSignal(peer, kLastSignal, 1, Soon()));
  return absl::OkStatus();
}

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TESTING_RANK_TRAFFIC_H_
