#include "planner/pacing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "collectives/simulator/simulate.h"
#include "collectives/testing/runs.h"

namespace tidetape::planner {
namespace {

using ::testing::HasSubstr;

constexpr double kRate = 1e9, kLatency = 1e-4, kPut = 1e-6;
constexpr int64_t kMiB = 1 << 20;

LinkRates Link(double rate = kRate, double latency = kLatency) { return {rate, latency, kPut, {}}; }

LinkReport Links(int32_t hosts, int32_t per_host, int64_t gathered_bytes) {
  LinkReport links;
  links.ranks = hosts * per_host;
  links.hosts = hosts;
  if (per_host > 1) links.local = Link(4 * kRate, kLatency / 50);
  if (hosts > 1) links.network = Link();
  links.units = {{gathered_bytes, 1}};
  return links;
}

PacingPlan MustPlan(const LinkReport& links, int64_t memory_free_bytes = 1 << 30) {
  const auto plan = PlanPacing({links, memory_free_bytes});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *plan;
}

// --- closed forms -----------------------------------------------------------------------------------------------------------

TEST(PacingTest, TwoHostsExchangeOneShard) {
  // One round: o + a, and the bytes.
  const double bytes = 2.0 * kMiB;
  EXPECT_NEAR(GatherSeconds(Links(2, 1, 4 * kMiB), 4 * kMiB, GatherAlgorithm::kRecursiveDoubling, kMiB),
              kPut + kLatency + bytes / kRate, 1e-12);
}

TEST(PacingTest, DoublingWaitsALatencyARound) {
  const double shard = kMiB;
  EXPECT_NEAR(GatherSeconds(Links(8, 1, 8 * kMiB), 8 * kMiB, GatherAlgorithm::kRecursiveDoubling, kMiB),
              3 * (kPut + kLatency) + 7 * shard / kRate, 1e-12);
}

TEST(PacingTest, ARingOfWholeShardsWaitsALatencyAShard) {
  const double shard = kMiB;
  EXPECT_NEAR(GatherSeconds(Links(8, 1, 8 * kMiB), 8 * kMiB, GatherAlgorithm::kRing, kMiB), 7 * (kPut + kLatency + shard / kRate),
              1e-12);
}

TEST(PacingTest, ARingOfChunksWaitsOneLatency) {
  // 16 chunks take 1.05 ms, more than a chunk's flight: from the first arrival on the link is busy.
  const double shard = kMiB;
  EXPECT_NEAR(GatherSeconds(Links(8, 1, 8 * kMiB), 8 * kMiB, GatherAlgorithm::kRing, kMiB / 16),
              kPut + kLatency + 7 * shard / kRate, 1e-12);
}

TEST(PacingTest, SmallChunksAreBoundByTheSender) {
  LinkReport links = Links(2, 1, 2 * kMiB);
  links.network->put_seconds = 1e-3;
  const double chunks = 64, transfer = 16384 / kRate;
  EXPECT_NEAR(GatherSeconds(links, 2 * kMiB, GatherAlgorithm::kRecursiveDoubling, 16 << 10),
              1e-3 + transfer + kLatency + (chunks - 1) * 1e-3, 1e-12);
}

// --- the schedules themselves -----------------------------------------------------------------------------------------------

double Simulated(int32_t hosts, int32_t per_host, int64_t gathered_bytes, GatherAlgorithm algorithm, int64_t chunk_bytes) {
  using namespace tidetape::collectives;
  LayoutSpec spec;
  spec.meshes = {{"mesh", hosts * per_host, 1, per_host}};
  Parameter weight;
  weight.name = "weight";
  weight.dtype = weight.gradient_dtype = DType::kFloat32;
  weight.shape = {hosts * per_host, gathered_bytes / 4 / hosts / per_host};
  spec.units = {{"layers.0", "mesh", {weight}}};
  const Layout layout = *Layout::Create(spec);
  ScheduleOptions options;
  options.chunk_bytes = chunk_bytes;
  options.rail = algorithm == GatherAlgorithm::kRing ? RailAlgorithm::kRing : RailAlgorithm::kDoubling;
  const auto run = MakeRun(layout, CollectiveKind::kAllGather, 0, options);
  EXPECT_TRUE(run.ok()) << run.status();
  Machine machine;
  machine.local = {4 * kRate, kLatency / 50, kPut, false, false};
  machine.network = {kRate, kLatency, kPut, false, false};
  machine.copy_bytes_per_second = 8e9;
  machine.add_elements_per_second = 1e9;
  const auto ranks = Simulate(run->schedules, machine, {per_host, false});
  EXPECT_TRUE(ranks.ok()) << ranks.status();
  double slowest = 0;
  for (const SimulatedRank& rank : *ranks) slowest = std::max(slowest, rank.seconds);
  return slowest;
}

TEST(PacingTest, EqualsTheSimulatorWithOneRankAHost) {
  for (const int32_t hosts : {2, 3, 4, 5, 8, 16}) {
    for (const int64_t chunk : {64 << 10, 256 << 10, 1 << 20, 4 << 20}) {
      for (const auto algorithm : {GatherAlgorithm::kRecursiveDoubling, GatherAlgorithm::kRing}) {
        const int64_t bytes = hosts * 2 * kMiB;
        const double predicted = GatherSeconds(Links(hosts, 1, bytes), bytes, algorithm, chunk);
        // The simulator starts with the news that the slots are free, which training has long before: one signal's flight, after
        // those that go out before it.
        const double simulated = Simulated(hosts, 1, bytes, algorithm, chunk);
        const double ready = kPut + kLatency;
        EXPECT_NEAR(simulated, predicted + ready, 4 * kPut) << hosts << " hosts, chunks of " << chunk;
      }
    }
  }
}

TEST(PacingTest, IsCloseToTheSimulatorWithSeveralRanksAHost) {
  for (const int32_t hosts : {1, 2, 4}) {
    for (const int64_t chunk : {64 << 10, 256 << 10, 1 << 20}) {
      const int64_t bytes = hosts * 4 * 2 * kMiB;
      const double predicted = GatherSeconds(Links(hosts, 4, bytes), bytes, GatherAlgorithm::kRecursiveDoubling, chunk);
      const double simulated = Simulated(hosts, 4, bytes, GatherAlgorithm::kRecursiveDoubling, chunk);
      EXPECT_NEAR(simulated / predicted, 1, 0.12) << hosts << " hosts, chunks of " << chunk;
    }
  }
}

// The choice is as good as the best of all choices that the simulator knows.
TEST(PacingTest, ChoosesWhatTheSimulatorWouldChoose) {
  for (const int32_t hosts : {3, 4, 8}) {
    for (const int64_t shard : {int64_t{32} << 10, int64_t{512} << 10, 8 * kMiB}) {
      const int64_t bytes = hosts * shard;
      const PacingPlan plan = MustPlan(Links(hosts, 1, bytes));
      double best = INFINITY;
      for (int64_t chunk = kLeastChunkBytes; chunk <= kMostChunkBytes; chunk *= 2) {
        for (const auto algorithm : {GatherAlgorithm::kRecursiveDoubling, GatherAlgorithm::kRing}) {
          best = std::min(best, Simulated(hosts, 1, bytes, algorithm, chunk));
        }
      }
      const double chosen = Simulated(hosts, 1, bytes, plan.algorithm, plan.chunk_bytes);
      EXPECT_LE(chosen, 1.05 * best) << hosts << " hosts, shards of " << shard;
    }
  }
}

// --- choices ----------------------------------------------------------------------------------------------------------------

TEST(PacingTest, SmallShardsDoubleAndLargeOnesCircle) {
  EXPECT_EQ(MustPlan(Links(8, 1, 8 << 10)).algorithm, GatherAlgorithm::kRecursiveDoubling);
  EXPECT_EQ(MustPlan(Links(8, 1, 256 * kMiB)).algorithm, GatherAlgorithm::kRing);
  EXPECT_EQ(MustPlan(Links(6, 1, 6 << 10)).algorithm, GatherAlgorithm::kRing);  // no power of two
}

TEST(PacingTest, ALinkThatNothingOverrunsIsNotBounded) {
  LinkReport links = Links(2, 1, 8 * kMiB);
  links.network->windows = {{256 << 10, 0.96 * kRate}, {1 << 20, kRate}, {0, 0.92 * kRate}};
  const PacingPlan plan = MustPlan(links);
  EXPECT_EQ(plan.puts_in_flight, kMostPutsInFlight);
  EXPECT_EQ(plan.chunk_gap_seconds, 0);
}

TEST(PacingTest, AQueueThatOverrunsBoundsTheWindow) {
  LinkReport links = Links(2, 1, 8 * kMiB);
  links.network->latency_seconds = 1e-5;
  links.network->windows = {
      {128 << 10, 0.8 * kRate}, {256 << 10, 0.99 * kRate}, {512 << 10, kRate}, {1 << 20, 0.4 * kRate}, {0, 0.1 * kRate}};
  const PacingPlan plan = MustPlan(links);
  EXPECT_EQ(plan.puts_in_flight * plan.chunk_bytes, 256 << 10);
  EXPECT_GE(plan.puts_in_flight, kChunksOfWindow);
  EXPECT_EQ(plan.chunk_gap_seconds, 0);
}

TEST(PacingTest, AQueueBelowTheRoundTripKeepsChunksApart) {
  LinkReport links = Links(2, 1, 8 * kMiB);
  links.network->latency_seconds = 1e-2;  // 20 MB are on their way in a round trip
  links.network->windows = {{256 << 10, 0.02 * kRate}, {1 << 20, 0.01 * kRate}, {0, 0.01 * kRate}};
  const PacingPlan plan = MustPlan(links);
  EXPECT_EQ(plan.puts_in_flight, kMostPutsInFlight);
  EXPECT_LE(plan.chunk_bytes, 128 << 10);
  EXPECT_DOUBLE_EQ(plan.chunk_gap_seconds, static_cast<double>(plan.chunk_bytes) / kRate);
}

TEST(PacingTest, PrefetchHidesWhatOneUnitOfComputeDoesNotAndFitsTheMemory) {
  LinkReport links = Links(2, 1, 0);
  links.units = {{8 * kMiB, 4}};
  links.compute_seconds = 4 * 2 * 0.002;  // 2 ms beside each gather, which takes 4.3 ms
  EXPECT_EQ(MustPlan(links, 64 * kMiB).prefetch_depth, 3);
  EXPECT_EQ(MustPlan(links, 9 * kMiB).prefetch_depth, 2);
  EXPECT_FALSE(MustPlan(links, 9 * kMiB).slot_reuse);
  EXPECT_EQ(MustPlan(links, kMiB).prefetch_depth, 1);
  EXPECT_TRUE(MustPlan(links, kMiB).slot_reuse);
}

TEST(PacingTest, MergesToTheWorstLink) {
  LinkReport a = Links(2, 1, kMiB), b = a, c = a;
  a.network = {3e9, 1e-5, 2e-6, {{1 << 20, 2e9}, {0, 1e9}}};
  b.network = {1e9, 3e-5, 1e-6, {{1 << 20, 5e8}, {0, 3e9}}};
  c.network = {2e9, 2e-5, 3e-6, {{0, 2e9}}};
  a.compute_seconds = 1, b.compute_seconds = 9, c.compute_seconds = 2;
  const auto merged = MergeLinks({a, b, c});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->network->bytes_per_second, 1e9);
  EXPECT_EQ(merged->network->latency_seconds, 3e-5);
  EXPECT_EQ(merged->network->put_seconds, 3e-6);
  ASSERT_EQ(merged->network->windows.size(), 2U);
  EXPECT_EQ(merged->network->windows[0].bytes_per_second, 5e8);
  EXPECT_EQ(merged->network->windows[1].bytes_per_second, 1e9);
  EXPECT_EQ(merged->compute_seconds, 2);
}

TEST(PacingTest, RefusesWhatIsNoMeasurement) {
  EXPECT_THAT(MergeLinks({Links(2, 1, kMiB), Links(4, 1, kMiB)}).status().message(), HasSubstr("report 1: 4 ranks on 4 hosts"));
  LinkReport links = Links(2, 1, kMiB);
  links.network->bytes_per_second = 0;
  EXPECT_THAT(PlanPacing({links, 0}).status().message(), HasSubstr("network.bytes_per_second is 0"));
  links.network.reset();
  EXPECT_THAT(PlanPacing({links, 0}).status().message(), HasSubstr("network is missing"));
  links = Links(3, 1, kMiB);
  links.ranks = 4;
  EXPECT_THAT(PlanPacing({links, 0}).status().message(), HasSubstr("equally many ranks on each host"));
}

TEST(PacingTest, SwitchesForAStallButNotForScatter) {
  LinkReport links = Links(4, 1, 8 * kMiB);
  const PacingPlan plan = MustPlan(links);
  EXPECT_FALSE(WorthSwitching({links, 0}, plan, plan));
  links.network->bytes_per_second *= 1.02;
  EXPECT_FALSE(WorthSwitching({links, 0}, plan, MustPlan(links)));
  links.network->windows = {{256 << 10, kRate}, {0, 0.1 * kRate}};
  EXPECT_TRUE(WorthSwitching({links, 0}, plan, MustPlan(links)));
  PacingPlan slow = plan;
  slow.chunk_bytes = kLeastChunkBytes;
  links = Links(4, 1, 8 * kMiB);
  links.network->put_seconds = 1e-4;
  EXPECT_TRUE(WorthSwitching({links, 0}, slow, MustPlan(links)));
}

}  // namespace
}  // namespace tidetape::planner
