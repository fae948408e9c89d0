#include "collectives/simulator/simulate.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "collectives/simulator/baselines.h"
#include "collectives/simulator/compare_schemes.h"
#include "collectives/simulator/model_shapes.h"
#include "collectives/testing/runs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidetape::collectives {
namespace {

using ::testing::HasSubstr;

constexpr double kRate = 1e9, kLatency = 1e-5, kPut = 1e-6;

Machine Plain() {
  Machine machine;
  machine.local = {4 * kRate, kLatency / 4, kPut, false, false};
  machine.network = {kRate, kLatency, kPut, false, false};
  machine.copy_bytes_per_second = 8e9;
  machine.add_elements_per_second = 1e9;
  machine.step_seconds = 0;
  return machine;
}

Layout OneWeight(int32_t shards, int32_t per_node, int64_t rows, int64_t columns) {
  LayoutSpec spec;
  spec.meshes = {{"mesh", shards, 1, per_node}};
  Parameter weight;
  weight.name = "weight";
  weight.shape = {rows * shards, columns};
  spec.units = {{"layers.0", "mesh", {weight}}};
  return *Layout::Create(spec);
}

double Slowest(const std::vector<SimulatedRank>& ranks) {
  double slowest = 0;
  for (const SimulatedRank& rank : ranks) slowest = std::max(slowest, rank.seconds);
  return slowest;
}

std::vector<SimulatedRank> MustSimulate(const std::vector<Schedule>& schedules, const Machine& machine,
                                        const SimulationOptions& options) {
  auto ranks = Simulate(schedules, machine, options);
  EXPECT_TRUE(ranks.ok()) << ranks.status();
  return *std::move(ranks);
}

// Steps by hand.
Step Message(StepKind kind, int32_t peer, int64_t bytes) {
  Step step;
  step.kind = kind;
  step.peer = peer;
  step.signal = 0;
  step.count = 1;
  step.bytes = bytes;
  return step;
}

TEST(SimulateTest, PingPongTakesTwoMessages) {
  std::vector<Schedule> ranks(2);
  ranks[0].steps = {Message(StepKind::kPut, 1, 1000), Message(StepKind::kWait, 1, 0)};
  ranks[1].steps = {Message(StepKind::kWait, 0, 0), Message(StepKind::kPut, 0, 1000)};
  EXPECT_NEAR(Slowest(MustSimulate(ranks, Plain(), {1, false})), 2 * (kPut + kLatency + 1000 / kRate), 1e-12);
}

// Two senders, one receiver: its port takes one message after the other.
TEST(SimulateTest, AReceiversPortIsSharedByItsSenders) {
  std::vector<Schedule> ranks(3);
  ranks[0].steps = {Message(StepKind::kPut, 2, 1000000)};
  ranks[1].steps = {Message(StepKind::kPut, 2, 1000000)};
  ranks[2].steps = {Message(StepKind::kWait, 0, 0), Message(StepKind::kWait, 1, 0)};
  EXPECT_NEAR(MustSimulate(ranks, Plain(), {1, false})[2].seconds, kPut + kLatency + 2 * 1e6 / kRate, 1e-12);
}

TEST(SimulateTest, MulticastTakesTheSendersPortOnce) {
  std::vector<Schedule> ranks(3);
  ranks[0].peer_sets = {{1, 2}};
  ranks[0].steps = {Message(StepKind::kMulticast, 0, 4000000)};
  ranks[1].steps = {Message(StepKind::kWait, 0, 0)};
  ranks[2].steps = {Message(StepKind::kWait, 0, 0)};
  Machine machine = Plain();
  EXPECT_NEAR(MustSimulate(ranks, machine, {3, false})[2].seconds, kPut + kLatency / 4 + 2e-3, 1e-12);  // 1 ms each
  machine.local.multicast = true;
  EXPECT_NEAR(MustSimulate(ranks, machine, {3, false})[2].seconds, kPut + kLatency / 4 + 1e-3, 1e-12);
}

TEST(SimulateTest, ASenderThatCopiesIsBusyMeanwhile) {
  std::vector<Schedule> ranks(2);
  Step copy;
  copy.kind = StepKind::kCopy;
  copy.bytes = 8000000;
  ranks[0].steps = {Message(StepKind::kPut, 1, 4000000), copy};
  ranks[1].steps = {Message(StepKind::kWait, 0, 0)};
  Machine machine = Plain();
  EXPECT_NEAR(MustSimulate(ranks, machine, {2, false})[0].seconds, kPut + 1e-3, 1e-12);  // beside the transfer
  machine.local.sender_copies = true;
  EXPECT_NEAR(MustSimulate(ranks, machine, {2, false})[0].seconds, kPut + 2e-3, 1e-12);
}

TEST(SimulateTest, RanksShareTheProcessorsOfTheirNode) {
  std::vector<Schedule> ranks(4);
  Step copy;
  copy.kind = StepKind::kCopy;
  copy.bytes = 8000000;
  for (Schedule& rank : ranks) rank.steps = {copy};
  Machine machine = Plain();
  EXPECT_NEAR(Slowest(MustSimulate(ranks, machine, {4, false})), 1e-3, 1e-12);
  machine.processors = 2;
  EXPECT_NEAR(Slowest(MustSimulate(ranks, machine, {4, false})), 2e-3, 1e-12);
  EXPECT_NEAR(Slowest(MustSimulate(ranks, machine, {2, false})), 1e-3, 1e-12) << "two nodes";
  // A link takes them where it says so.
  for (int32_t rank = 0; rank < 4; ++rank) {
    ranks[rank].steps = {Message(StepKind::kPut, rank ^ 1, 4000000), Message(StepKind::kWait, rank ^ 1, 0)};
  }
  EXPECT_NEAR(Slowest(MustSimulate(ranks, machine, {4, false})), kPut + kLatency / 4 + 1e-3, 1e-12);
  machine.local.takes_processor = true;
  EXPECT_NEAR(Slowest(MustSimulate(ranks, machine, {4, false})), kPut + kLatency / 4 + 2e-3, 1e-12);
}

// (n - 1) messages, each alone on its link: Thakur, Rabenseifner, Gropp (2005).
TEST(SimulateTest, RingTakesItsClosedForm) {
  for (int32_t nodes : {2, 3, 7, 16}) {
    const Layout layout = OneWeight(nodes, 1, 16, 64);
    ScheduleOptions options;
    options.rail = RailAlgorithm::kRing;
    const auto run = MakeRun(layout, CollectiveKind::kAllGather, 0, options);
    ASSERT_TRUE(run.ok());
    // The signal that says ready comes first, as a message without bytes.
    const double expected = kPut + kLatency + (nodes - 1) * (kPut + kLatency + 16 * 64 * 2 / kRate);
    EXPECT_NEAR(Slowest(MustSimulate(run->schedules, Plain(), {1, false})), expected, 1e-9) << nodes;
  }
}

// log2(n) latencies and (n - 1) shards' time.
TEST(SimulateTest, RecursiveDoublingTakesItsClosedForm) {
  Machine machine = Plain();
  machine.network.put_seconds = 0;
  for (int32_t nodes : {2, 4, 8, 32}) {
    const Layout layout = OneWeight(nodes, 1, 16, 64);
    const auto run = MakeRun(layout, CollectiveKind::kAllGather, 0, {});
    ASSERT_TRUE(run.ok());
    const double expected = kLatency + std::log2(nodes) * kLatency + (nodes - 1) * 16 * 64 * 2 / kRate;
    EXPECT_NEAR(Slowest(MustSimulate(run->schedules, machine, {1, false})), expected, 1e-9) << nodes;
  }
}

// One node stands for all: to the nanosecond what simulating all gives.
TEST(SimulateTest, FoldingChangesNothing) {
  for (const auto& [nodes, per_node] : std::vector<std::pair<int, int>>{{2, 2}, {4, 1}, {4, 4}, {3, 2}, {8, 2}, {5, 4}}) {
    for (RailAlgorithm rail : {RailAlgorithm::kRing, RailAlgorithm::kDoubling}) {
      const Layout layout = OneWeight(nodes * per_node, per_node, 96, 64);
      ScheduleOptions options;
      options.chunk_bytes = 1024;
      options.rail = rail;
      options.gap = absl::Microseconds(2);
      std::vector<std::vector<Schedule>> collectives;
      for (CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
        collectives.push_back(MakeRun(layout, kind, 0, options)->schedules);
      }
      for (int i = 0; i < 2; ++i) collectives.emplace_back();
      for (const Group& group : GroupsOf(layout.units()[0].mesh)) {
        collectives[2].push_back(StockAllGather(group, 96 * 64 * 2));
        collectives[3].push_back(StockReduceScatter(group, 96 * 64));
      }
      for (size_t c = 0; c < collectives.size(); ++c) {
        SCOPED_TRACE(testing::Message() << nodes << " x " << per_node << ", collective " << c);
        std::vector<Schedule> first_node(collectives[c].begin(), collectives[c].begin() + per_node);
        const double folded = Slowest(MustSimulate(first_node, Plain(), {per_node, true}));
        const double full = Slowest(MustSimulate(collectives[c], Plain(), {per_node, false}));
        EXPECT_NEAR(folded, full, 1e-9 + full * 0.002);
      }
    }
  }
}

TEST(SimulateTest, LinksCarryTheLeastPossible) {
  const Layout layout = OneWeight(16, 4, 96, 64);
  const auto gather = MakeRun(layout, CollectiveKind::kAllGather, 0, {}),
             reduce = MakeRun(layout, CollectiveKind::kReduceScatter, 0, {});
  for (const SimulatedRank& rank : MustSimulate(gather->schedules, Plain(), {4, false})) {
    EXPECT_EQ(rank.network_bytes, 3 * 96 * 64 * 2);
  }
  for (const SimulatedRank& rank : MustSimulate(reduce->schedules, Plain(), {4, false})) {
    EXPECT_EQ(rank.network_bytes, 3 * 96 * 64 * 4);
    EXPECT_EQ(rank.local_bytes, 3 * 4 * 96 * 64 * 2);
    // Gradients are free before the network is done.
    EXPECT_LT(rank.phase_end_seconds[1], rank.phase_end_seconds[2]);
  }
}

TEST(SimulateTest, SaysWhoNeverGetsOn) {
  std::vector<Schedule> ranks(2);
  ranks[1].collective = "test";
  ranks[1].steps = {Message(StepKind::kWait, 0, 0)};
  EXPECT_THAT(std::string(Simulate(ranks, Plain(), {1, false}).status().message()),
              HasSubstr("rank 1 never gets past step 0: wait"));
}

// As the models' cards count them.
TEST(ModelShapesTest, HaveThePublishedNumberOfParameters) {
  const auto parameters = [](const std::string& name) { return ModelNamed(name)->parameters(); };
  EXPECT_EQ(parameters("llama-3.1-8b"), 8030261248);
  EXPECT_EQ(parameters("llama-3.1-70b"), 70553706496);
  EXPECT_EQ(parameters("qwen3-8b"), 8190735360);
  EXPECT_EQ(parameters("qwen3-32b"), 32762123264);
  EXPECT_EQ(parameters("qwen3-30b-a3b"), 30532122624);
  EXPECT_THAT(std::string(ModelNamed("gpt").status().message()), HasSubstr("llama-3.1-70b"));
}

TEST(CompareSchemesTest, BytesFollowFromTheModel) {
  const ModelShape model = *ModelNamed("llama-3.1-8b");
  ScheduleOptions options;
  options.chunk_bytes = 32 << 20;
  const auto costs = CompareSchemes(model, {16, 8}, H100Machine(), options);
  ASSERT_TRUE(costs.ok()) << costs.status();
  ASSERT_EQ(costs->size(), 3u);
  // Two nodes: half of all bytes, an eighth of it on each rail. Forward, backward, and the head once; sums of float32.
  const int64_t all = model.parameters(), head = 128256 * 4096 + 4096;
  EXPECT_EQ((*costs)[2].network_bytes, ((2 * all - head) * 2 + all * 4) / 16);
  const SchemeCost &stock = (*costs)[0], &symm = (*costs)[1], &tidetape = (*costs)[2];
  EXPECT_LT(tidetape.step_seconds(), symm.step_seconds());
  EXPECT_LT(tidetape.peak_bytes, stock.peak_bytes);
  EXPECT_EQ(stock.peak_bytes - stock.staging_bytes, tidetape.peak_bytes - tidetape.staging_bytes);
  EXPECT_LE(stock.network_load, 1);
}

TEST(CompareSchemesTest, RefusesNodesThatDoNotFit) {
  EXPECT_THAT(std::string(CompareSchemes(*ModelNamed("qwen3-8b"), {12, 8}, H100Machine(), {}).status().message()),
              HasSubstr("must divide the number of GPUs, 12"));
}

}  // namespace
}  // namespace tidetape::collectives
