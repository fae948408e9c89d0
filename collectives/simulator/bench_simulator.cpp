// How well the simulator foretells the real CPU transports: a link's numbers are fitted on ping-pong between two ranks alone, then
// collectives of other sizes and of up to four ranks are timed and simulated. One JSON object on the last line:
//   {"shm": {"link": {"bytes_per_second", "latency_seconds", "put_seconds"}, "add_elements_per_second", "cases": [{"collective",
//    "ranks", "shard_bytes", "measured_seconds", "simulated_seconds", "error"}, ...], "worst_error"}, "tcp": ...}
//
// Both ranks of the ping-pong send at once, as collectives do. All is timed in turn, and the least of all rounds counts, so that
// other work on the machine does little harm. Over shared memory the ranks are one node, over TCP (loopback) a node each; in both
// they share this machine's processors, whose number the simulator is told. Additions are timed on two ranks, alone.
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "collectives/add_kernels.h"
#include "collectives/executor.h"
#include "collectives/simulator/simulate.h"
#include "collectives/testing/rank_processes.h"
#include "collectives/testing/runs.h"
#include "collectives/transports/rendezvous/file_store.h"
#include "collectives/transports/shm/shm_transport.h"
#include "collectives/transports/tcp/steady_time.h"
#include "collectives/transports/tcp/tcp_transport.h"

namespace tidetape::collectives {
namespace {

constexpr int kRanks = 4;
constexpr int kRounds = 25;
constexpr int64_t kChunk = 1 << 20;
constexpr int64_t kAdded = 1 << 20;  // elements
// Signals beside those of the layouts.
constexpr int kSignals = 64, kBarrier = 60, kPing = 61, kTimes = 62;
constexpr int64_t kFitSizes[] = {64 << 10, 256 << 10, 1 << 20, 4 << 20};
constexpr int64_t kShardSizes[] = {384 << 10, 1536 << 10, 6 << 20};
// For the times that ranks tell each other, at the arena's end.
constexpr uint64_t kTimesBytes = 4096;
// More than caches hold.
constexpr size_t kEvictedBytes = 96 << 20;

struct Case {
  CollectiveKind kind;
  int32_t ranks;
  int64_t shard_bytes;
  Layout layout;
  CollectiveRun run;
};

void MustBeOk(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::abort();
}

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

std::vector<Case> MakeCases(bool one_node) {
  std::vector<Case> cases;
  for (CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
    for (int32_t ranks = 2; ranks <= kRanks; ++ranks) {
      for (int64_t bytes : kShardSizes) {
        LayoutSpec spec;
        spec.meshes = {{"mesh", ranks, 1, one_node ? ranks : 1}};
        Parameter weight;
        weight.name = "weight";
        weight.shape = {ranks * bytes / 2048, 1024};
        spec.units = {{"unit", "mesh", {weight}}};
        spec.options.staging_bytes = 4 << 20;
        spec.options.reuse_slots = false;
        Layout layout = *Layout::Create(spec);
        ScheduleOptions options;
        options.chunk_bytes = kChunk;
        CollectiveRun run = *MakeRun(layout, kind, 0, options);
        cases.push_back({kind, ranks, bytes, std::move(layout), std::move(run)});
      }
    }
  }
  return cases;
}

// One rank's part of all timings. Every rank makes the same calls.
class Bench {
 public:
  explicit Bench(Transport& transport) : transport_(transport), source_(8 << 20, std::byte{1}), evicted_(kEvictedBytes) {}

  // Of the slowest of the first `ranks`, known to rank 0 alone; they begin together.
  double Slowest(int ranks, const std::function<void()>& body) {
    Evict();
    Barrier();
    const absl::Time start = SteadyNow();
    if (transport_.rank() < ranks) body();
    double seconds = absl::ToDoubleSeconds(SteadyNow() - start);
    if (transport_.rank() == 0) {
      for (int rank = 1; rank < ranks; ++rank) {
        MustBeOk(transport_.WaitSignal(rank, kTimes, 1, Soon()));
        double other = 0;
        std::memcpy(&other, transport_.arena().data() + Place(rank), sizeof other);
        seconds = std::max(seconds, other);
      }
    } else if (transport_.rank() < ranks) {
      const auto bytes = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(&seconds), sizeof seconds);
      MustBeOk(transport_.PutSignal(0, bytes, Place(transport_.rank()), kTimes));
      MustBeOk(transport_.Flush(Soon()));
    }
    return seconds;
  }

  // Ranks 0 and 1 send to each other at once and wait.
  double PingPong(int64_t bytes) {
    constexpr int kTimesEach = 4;
    return Slowest(2,
                   [&] {
                     const int peer = 1 - transport_.rank();
                     for (int i = 0; i < kTimesEach; ++i) {
                       MustBeOk(transport_.PutSignal(peer, absl::MakeConstSpan(source_).subspan(0, bytes), 0, kPing));
                       MustBeOk(transport_.WaitSignal(peer, kPing, 1, Soon()));
                     }
                   }) /
           kTimesEach;
  }

  // Until a call that sends next to nothing returns.
  double Put() {
    constexpr int kTimesEach = 32;
    return Slowest(2,
                   [&] {
                     if (transport_.rank() == 1) return MustBeOk(transport_.WaitSignal(0, kPing, kTimesEach, Soon()));
                     for (int i = 0; i < kTimesEach; ++i)
                       MustBeOk(transport_.PutSignal(1, absl::MakeConstSpan(source_).subspan(0, 64), 0, kPing));
                   }) /
           kTimesEach;
  }

  // bfloat16 of two sources into float32.
  double Add() {
    output_.resize(kAdded);
    return Slowest(2, [&] {
      const std::byte* sources[] = {source_.data(), source_.data() + 2 * kAdded};
      ScaleSum(reinterpret_cast<std::byte*>(output_.data()), sources, DType::kBFloat16, 0.5F, false, kAdded);
    });
  }

  double Collective(const Case& what) {
    Executor executor(transport_, {absl::Seconds(60)});
    ReduceBuffers buffers;
    if (what.kind == CollectiveKind::kReduceScatter && transport_.rank() < what.ranks) {
      gradient_.resize(what.ranks * what.shard_bytes, std::byte{0});
      output_.resize(what.shard_bytes / 2);
      buffers.gradients.push_back(absl::MakeConstSpan(gradient_).subspan(0, what.ranks * what.shard_bytes));
      buffers.outputs.push_back({absl::MakeSpan(output_).subspan(0, what.shard_bytes / 2), false});
    }
    return Slowest(what.ranks, [&] { MustBeOk(executor.Run(what.run.schedules[transport_.rank()], buffers, 0)); });
  }

 private:
  uint64_t Place(int rank) const { return transport_.arena().size() - 64 * (rank + 1); }

  // Training has used the caches for other things when a collective begins.
  void Evict() {
    for (size_t i = 0; i < evicted_.size(); i += 64) evicted_[i] ^= std::byte{1};
  }

  void Barrier() {
    if (transport_.rank() == 0) {
      for (int rank = 1; rank < kRanks; ++rank) MustBeOk(transport_.WaitSignal(rank, kBarrier, 1, Soon()));
      for (int rank = 1; rank < kRanks; ++rank) MustBeOk(transport_.Signal(rank, kBarrier));
    } else {
      MustBeOk(transport_.Signal(0, kBarrier));
      MustBeOk(transport_.WaitSignal(0, kBarrier, 1, Soon()));
    }
  }

  Transport& transport_;
  std::vector<std::byte> source_, gradient_, evicted_;
  std::vector<float> output_;
};

struct Least {
  double seconds = INFINITY;
  void Take(double other) { seconds = std::min(seconds, other); }
};

struct Timings {
  Least ping_pong[std::size(kFitSizes)], put, add;
  std::vector<Least> cases;
};

Timings Time(Transport& transport, const std::vector<Case>& cases) {
  Bench bench(transport);
  Timings timings;
  timings.cases.resize(cases.size());
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < std::size(kFitSizes); ++i) timings.ping_pong[i].Take(bench.PingPong(kFitSizes[i]));
    timings.put.Take(bench.Put());
    timings.add.Take(bench.Add());
    for (size_t i = 0; i < cases.size(); ++i) timings.cases[i].Take(bench.Collective(cases[i]));
  }
  return timings;
}

// seconds = intercept + bytes / rate, with the least squares of relative errors.
LinkModel Fit(const Timings& timings) {
  double s = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (size_t i = 0; i < std::size(kFitSizes); ++i) {
    const double x = static_cast<double>(kFitSizes[i]), y = timings.ping_pong[i].seconds, w = 1 / (y * y);
    s += w, sx += w * x, sy += w * y, sxx += w * x * x, sxy += w * x * y;
  }
  const double slope = (s * sxy - sx * sy) / (s * sxx - sx * sx), intercept = std::max(0.0, (sy - slope * sx) / s);
  LinkModel link;
  link.bytes_per_second = 1 / slope;
  link.put_seconds = std::min(timings.put.seconds, intercept);
  link.latency_seconds = intercept - link.put_seconds;
  return link;
}

std::string Report(const Timings& timings, const std::vector<Case>& cases, bool one_node) {
  cpu_set_t cores;
  sched_getaffinity(0, sizeof cores, &cores);
  Machine machine;
  LinkModel& link = one_node ? machine.local : machine.network;
  link = Fit(timings);
  (one_node ? link.sender_copies : link.takes_processor) = true;
  machine.processors = CPU_COUNT(&cores);
  machine.copy_bytes_per_second = link.bytes_per_second;
  // As the simulator counts a sum of two (simulate.cpp): 8 bytes moved where an addition moves 10.
  machine.add_elements_per_second = static_cast<double>(kAdded) * 0.8 / timings.add.seconds;
  double worst = 0;
  std::vector<std::string> texts;
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto ranks = Simulate(cases[i].run.schedules, machine, {one_node ? cases[i].ranks : 1, false, kRanks});
    MustBeOk(ranks.status());
    double simulated = 0;
    for (const SimulatedRank& rank : *ranks) simulated = std::max(simulated, rank.seconds);
    const double measured = timings.cases[i].seconds, error = std::abs(simulated - measured) / measured;
    worst = std::max(worst, error);
    const std::string& name = cases[i].run.schedules[0].collective;
    std::printf("%s, %-14s of %d ranks, shards of %4d KiB: %7.3f ms measured, %7.3f ms simulated, error %4.1f %%\n",
                one_node ? "shm" : "tcp", name.c_str(), cases[i].ranks, static_cast<int>(cases[i].shard_bytes >> 10),
                1e3 * measured, 1e3 * simulated, 100 * error);
    texts.push_back(absl::StrFormat(
        R"({"collective": "%s", "ranks": %d, "shard_bytes": %d, "measured_seconds": %.6g, "simulated_seconds": %.6g, "error": %.4f})",
        name, cases[i].ranks, cases[i].shard_bytes, measured, simulated, error));
  }
  return absl::StrFormat(
      R"({"link": {"bytes_per_second": %.6g, "latency_seconds": %.6g, "put_seconds": %.6g}, "add_elements_per_second": %.6g, )"
      R"("cases": [%s], "worst_error": %.4f})",
      link.bytes_per_second, link.latency_seconds, link.put_seconds, machine.add_elements_per_second, absl::StrJoin(texts, ", "),
      worst);
}

std::string BenchTransport(bool one_node) {
  const TemporaryFolder folder;
  const std::vector<Case> cases = MakeCases(one_node);
  uint64_t arena_bytes = 0;
  for (const Case& each : cases) arena_bytes = std::max(arena_bytes, each.layout.arena_bytes() + kTimesBytes);
  const auto outcomes = RunRanks(kRanks, absl::Minutes(10), [&](int rank) -> absl::Status {
    FileStore store(folder.path());
    const GroupOptions options = {.rank = rank, .size = kRanks, .signals = kSignals, .arena_bytes = arena_bytes};
    std::unique_ptr<Transport> transport;
    if (one_node) {
      auto joined = ShmTransport::Join(store, options, {});
      if (!joined.ok()) return joined.status();
      transport = *std::move(joined);
    } else {
      auto joined = TcpTransport::Join(store, options, {.address = "127.0.0.1"});
      if (!joined.ok()) return joined.status();
      transport = *std::move(joined);
    }
    const Timings timings = Time(*transport, cases);
    if (rank != 0) return absl::OkStatus();
    const std::string report = Report(timings, cases, one_node);
    std::fflush(stdout);
    // The answer comes back as the status's text.
    return absl::UnknownError(report);
  });
  if (outcomes[0].status.code() != absl::StatusCode::kUnknown) MustBeOk(outcomes[0].status);
  return std::string(outcomes[0].status.message());
}

}  // namespace
}  // namespace tidetape::collectives

int main() {
  const std::string shm = tidetape::collectives::BenchTransport(true);
  const std::string tcp = tidetape::collectives::BenchTransport(false);
  std::printf("{\"shm\": %s, \"tcp\": %s}\n", shm.c_str(), tcp.c_str());
  return 0;
}
