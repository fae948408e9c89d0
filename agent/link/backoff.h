// Waiting times between attempts to reach the server.
#ifndef TIDETAPE_AGENT_LINK_BACKOFF_H_
#define TIDETAPE_AGENT_LINK_BACKOFF_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>

namespace tidetape::link {

// Grows exponentially up to a ceiling; each time is spread by jitter, so that the ranks of a job do not come back in one instant.
class Backoff {
 public:
  using Duration = std::chrono::steady_clock::duration;

  struct Options {
    Duration initial = std::chrono::milliseconds(200);
    // A restarted server has its jobs back within 5 seconds: two such waits and the time to connect.
    Duration ceiling = std::chrono::milliseconds(1600);
    double factor = 1.6;
    // Each time is multiplied by a random number between 1 - jitter and 1 + jitter.
    double jitter = 0.2;
  };

  Backoff(const Options& options, uint64_t seed) : options_(options), random_(seed), next_(options.initial) {}

  // How long to wait before the next attempt.
  Duration Next() {
    const Duration base = next_;
    next_ = std::min(options_.ceiling, std::chrono::duration_cast<Duration>(next_ * options_.factor));
    std::uniform_real_distribution<double> spread(1 - options_.jitter, 1 + options_.jitter);
    return std::chrono::duration_cast<Duration>(base * spread(random_));
  }

  void Reset() { next_ = options_.initial; }

 private:
  const Options options_;
  std::mt19937_64 random_;
  Duration next_;
};

}  // namespace tidetape::link

#endif  // TIDETAPE_AGENT_LINK_BACKOFF_H_
