// Times of the transports between two ranks of this machine, and of copying the same bytes, as one JSON object on the last line:
//   {"memcpy": {"1024": {"seconds", "least_seconds"}, ...},
//    "shm": {"signal_seconds", "ping_pong": {"1024": {"seconds", "least_seconds"}, ...}, "stream": {"1024": {"bytes_per_second"},
//    ...}}, "shm_sleeping": ..., "tcp": ...}
//
// seconds is the median of one way: half of a put there and a put of the same size back, each from the caller's memory to the
// peer's arena until its signal was waited for. bytes_per_second is of puts one after the other in one direction, 16 without an
// answer. shm_sleeping is shared memory without spinning. tcp goes over the loopback interface. Sizes are 1 KB to 64 MB, powers of
// four.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "collectives/testing/rank_processes.h"
#include "collectives/transports/rendezvous/file_store.h"
#include "collectives/transports/shm/shm_transport.h"
#include "collectives/transports/tcp/steady_time.h"
#include "collectives/transports/tcp/tcp_transport.h"

namespace tidetape::collectives {
namespace {

constexpr size_t kLeastBytes = 1 << 10;
constexpr size_t kMostBytes = 64 << 20;
constexpr int kInFlight = 16;
constexpr int kPing = 0;
constexpr int kPong = 1;
constexpr int kStream = 2;
constexpr int kTaken = 3;

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

// As many rounds as move about 1 GB, but enough for a median and not too many.
int RoundsOf(size_t bytes) { return static_cast<int>(std::clamp<size_t>((1 << 30) / bytes, 15, 2000)); }

struct Times {
  std::vector<double> seconds;

  double Median() {
    std::nth_element(seconds.begin(), seconds.begin() + static_cast<int64_t>(seconds.size() / 2), seconds.end());
    return seconds[seconds.size() / 2];
  }
  std::string Json(double share) {
    return absl::StrCat("{\"seconds\": ", share * Median(),
                        ", \"least_seconds\": ", share * *std::min_element(seconds.begin(), seconds.end()), "}");
  }
};

Times Measure(int rounds, const std::function<void()>& body) {
  Times times;
  // The first rounds touch pages and fill caches.
  for (int i = -2; i < rounds; ++i) {
    const absl::Time start = SteadyNow();
    body();
    if (i >= 0) times.seconds.push_back(absl::ToDoubleSeconds(SteadyNow() - start));
  }
  return times;
}

std::string ForEachSize(const std::function<std::string(size_t bytes)>& body) {
  std::vector<std::string> parts;
  for (size_t bytes = kLeastBytes; bytes <= kMostBytes; bytes *= 4) parts.push_back(absl::StrCat("\"", bytes, "\": ", body(bytes)));
  return absl::StrCat("{", absl::StrJoin(parts, ", "), "}");
}

std::string Memcpy() {
  std::vector<std::byte> from(kMostBytes, std::byte{1});
  std::vector<std::byte> to(kMostBytes);
  return ForEachSize([&](size_t bytes) {
    return Measure(RoundsOf(bytes),
                   [&] {
                     std::memcpy(to.data(), from.data(), bytes);
                     asm volatile("" : : "r"(to.data()) : "memory");
                   })
        .Json(1);
  });
}

void MustBeOk(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::abort();
}

// One way there and back; both ranks call it, rank 0 takes the times.
Times PingPong(Transport& transport, absl::Span<const std::byte> source, int rounds) {
  const int peer = 1 - transport.rank();
  return Measure(rounds, [&] {
    if (transport.rank() == 0) MustBeOk(transport.PutSignal(peer, source, 0, kPing));
    MustBeOk(transport.WaitSignal(peer, transport.rank() == 0 ? kPong : kPing, 1, Soon()));
    if (transport.rank() == 1) MustBeOk(transport.PutSignal(peer, source, 0, kPong));
  });
}

// Puts from rank 0 to rank 1, at most kInFlight without an answer.
double Stream(Transport& transport, absl::Span<const std::byte> source, int rounds) {
  const absl::Time start = SteadyNow();
  for (int i = 0; i < rounds; ++i) {
    if (transport.rank() == 0) {
      if (i >= kInFlight) MustBeOk(transport.WaitSignal(1, kTaken, 1, Soon()));
      MustBeOk(transport.PutSignal(1, source, 0, kStream));
    } else {
      MustBeOk(transport.WaitSignal(0, kStream, 1, Soon()));
      MustBeOk(transport.Signal(0, kTaken));
    }
  }
  if (transport.rank() == 0) MustBeOk(transport.WaitSignal(1, kTaken, static_cast<uint64_t>(std::min(kInFlight, rounds)), Soon()));
  return static_cast<double>(source.size()) * rounds / absl::ToDoubleSeconds(SteadyNow() - start);
}

using JoinFunction = std::function<absl::StatusOr<std::unique_ptr<Transport>>(Store& store, const GroupOptions& options)>;

absl::StatusOr<std::string> Bench(const JoinFunction& join) {
  const TemporaryFolder folder;
  const auto outcomes = RunRanks(2, absl::Minutes(10), [&](int rank) -> absl::Status {
    FileStore store(folder.path());
    auto joined = join(store, {.rank = rank, .size = 2, .signals = 8, .arena_bytes = kMostBytes});
    if (!joined.ok()) return joined.status();
    Transport& transport = **joined;
    const std::vector<std::byte> memory(kMostBytes, std::byte{1});
    const absl::Span<const std::byte> source = memory;
    const double signal = PingPong(transport, {}, 2000).Median() / 2;
    const std::string ping_pong =
        ForEachSize([&](size_t bytes) { return PingPong(transport, source.subspan(0, bytes), RoundsOf(bytes)).Json(0.5); });
    const std::string stream = ForEachSize([&](size_t bytes) {
      return absl::StrCat("{\"bytes_per_second\": ", Stream(transport, source.subspan(0, bytes), RoundsOf(bytes)), "}");
    });
    // The answer comes back as the status's text.
    return absl::UnknownError(
        absl::StrCat("{\"signal_seconds\": ", signal, ", \"ping_pong\": ", ping_pong, ", \"stream\": ", stream, "}"));
  });
  if (outcomes[0].status.code() != absl::StatusCode::kUnknown) return outcomes[0].status;
  return std::string(outcomes[0].status.message());
}

JoinFunction Shm(const ShmOptions& shm) {
  return [shm](Store& store, const GroupOptions& options) -> absl::StatusOr<std::unique_ptr<Transport>> {
    return ShmTransport::Join(store, options, shm);
  };
}

absl::StatusOr<std::unique_ptr<Transport>> JoinTcp(Store& store, const GroupOptions& options) {
  return TcpTransport::Join(store, options, {.address = "127.0.0.1"});
}

int Main() {
  std::string json = absl::StrCat("{\"memcpy\": ", Memcpy());
  const std::vector<std::pair<std::string, JoinFunction>> transports = {
      {"shm", Shm({})}, {"shm_sleeping", Shm({.spin = absl::ZeroDuration()})}, {"tcp", JoinTcp}};
  for (const auto& [name, join] : transports) {
    std::fprintf(stderr, "%s...\n", name.c_str());
    const absl::StatusOr<std::string> result = Bench(join);
    if (!result.ok()) {
      std::fprintf(stderr, "%s: %s\n", name.c_str(), result.status().ToString().c_str());
      return 1;
    }
    absl::StrAppend(&json, ", \"", name, "\": ", *result);
  }
  std::printf("%s}\n", json.c_str());
  return 0;
}

}  // namespace
}  // namespace tidetape::collectives

int main() { return tidetape::collectives::Main(); }
