#include "collectives/verifier/schedule_verifier.h"

#include <algorithm>
#include <string>
#include <vector>

#include "collectives/testing/sound.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidetape::collectives {
namespace {

TEST(ScheduleVerifierTest, AcceptsEverySizeFrom1To64Ranks) {
  for (int32_t shards = 1; shards <= 64; ++shards) {
    for (int32_t per_node = 1; per_node <= shards && per_node <= 16; ++per_node) {
      if (shards % per_node != 0) continue;
      // All shapes of few ranks; of many, those with one, three and eight ranks a node.
      if (shards > 20 && per_node != 1 && per_node != 3 && per_node != 8) continue;
      SCOPED_TRACE(testing::Message() << shards << " ranks, " << per_node << " a node");
      ScheduleOptions options;
      options.chunk_bytes = shards <= 12 ? 64 : 4096;
      options.rail = shards % 3 == 0 ? RailAlgorithm::kRing : RailAlgorithm::kDoubling;
      ASSERT_NO_FATAL_FAILURE(ExpectAllSound(Model(shards, per_node), options));
    }
  }
}

TEST(ScheduleVerifierTest, AcceptsManyMessagesAndRounds) {
  for (const auto& [shards, per_node, replicas] : std::vector<std::tuple<int, int, int>>{
           {1, 1, 1}, {2, 1, 1}, {2, 2, 1}, {4, 4, 1}, {6, 2, 1}, {8, 4, 1}, {3, 1, 2}, {4, 2, 3}, {2, 2, 5}, {1, 1, 4}}) {
    SCOPED_TRACE(testing::Message() << shards << " shards, " << per_node << " a node, " << replicas << " copies");
    ScheduleOptions options;
    options.chunk_bytes = 256;
    options.puts_in_flight = 3;
    ASSERT_NO_FATAL_FAILURE(ExpectAllSound(LongModel(shards, per_node, replicas), options));
  }
}

TEST(ScheduleVerifierTest, AcceptsWhateverAPlannerMaySet) {
  for (int seed = 0; seed < 80; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const RandomCase random(seed);
    ASSERT_NO_FATAL_FAILURE(ExpectAllSound(random.spec, random.options));
  }
}

// Forward and backward of four units in two slots, with prefetch of one unit and reduction in the slots that were vacated. Runs 0
// to 3 gather in forward, 4 to 7 in backward (of units 3 to 0), 8 to 11 reduce (units 3 to 0).
class TrainingStep {
 public:
  TrainingStep(int32_t per_node, int32_t nodes, bool shared = false) {
    LayoutSpec spec;
    spec.meshes = {{"mesh", per_node * nodes, 1, per_node}};
    for (int u = 0; u < 4; ++u) {
      spec.units.push_back({"layers." + std::to_string(u), "mesh", {Make("a", {per_node * nodes * 600 + u, 5}), Make("b", {33})}});
    }
    spec.options.staging_bytes = 4096;
    layout_ = *Layout::Create(spec);
    if (shared) {
      spec.options.host_ranks = per_node;
      layout_ = *Layout::Create(spec);
    } else if (per_node >= 4) {
      EXPECT_EQ(layout_->staging().bytes + layout_->accumulators().bytes, 0) << "all is reduced in slots";
    }
    ScheduleOptions options;
    options.chunk_bytes = 2048;
    for (int32_t u : {0, 1, 2, 3, 3, 2, 1, 0}) runs_.push_back(*MakeRun(*layout_, CollectiveKind::kAllGather, u, options));
    for (int32_t u : {3, 2, 1, 0}) runs_.push_back(*MakeRun(*layout_, CollectiveKind::kReduceScatter, u, options));
  }

  // Ready and gather: phases 0 and 1, with admit between them in shared slots. Reduction: ready 0, rows 1, network 2.
  std::vector<ProgramPart> Order() const {
    const auto gather = [&](int32_t run) {
      std::vector<ProgramPart> parts = {{run, 0}, {run, 1}};
      if (runs_[run].schedules[0].phases.size() == 3) parts.push_back({run, 2});
      return parts;
    };
    const auto reduce = [](int32_t run) { return std::vector<ProgramPart>{{run, 0}, {run, 1}, {run, 2}}; };
    std::vector<ProgramPart> order;
    const auto add = [&](const std::vector<ProgramPart>& parts) { order.insert(order.end(), parts.begin(), parts.end()); };
    add(gather(0));
    for (int32_t u = 0; u < 4; ++u) {  // slot u % 2
      if (u + 1 < 4) add(gather(u + 1));
      order.push_back({u, 0, true});
    }
    add(gather(4));
    for (int32_t i = 0; i < 4; ++i) {  // units 3, 2, 1, 0
      if (i + 1 < 4) add(gather(5 + i));
      order.push_back({4 + i, 0, true});
      add(reduce(8 + i));
    }
    return order;
  }

  absl::Status Verify(const std::vector<ProgramPart>& order) const {
    return VerifyProgram(*layout_, runs_, std::vector<std::vector<ProgramPart>>(runs_[0].groups.size(), order));
  }

 private:
  absl::StatusOr<Layout> layout_ = absl::UnknownError("not made yet");
  std::vector<CollectiveRun> runs_;
};

TEST(ScheduleVerifierTest, AcceptsAWholeTrainingStep) {
  for (const auto& [per_node, nodes] : std::vector<std::pair<int, int>>{{2, 1}, {4, 1}, {2, 2}, {4, 2}, {2, 3}}) {
    SCOPED_TRACE(testing::Message() << per_node << " x " << nodes);
    const TrainingStep step(per_node, nodes);
    const absl::Status status = step.Verify(step.Order());
    EXPECT_TRUE(status.ok()) << status;
    const TrainingStep shared(per_node, nodes, true);
    const absl::Status shared_status = shared.Verify(shared.Order());
    EXPECT_TRUE(shared_status.ok()) << shared_status;
  }
}

// In a slot that a host shares, a rank must not even write its own shard while another rank still computes with what was there.
TEST(ScheduleVerifierTest, SeesASharedSlotFilledThatANeighbourUses) {
  const TrainingStep step(2, 2, true);
  std::vector<ProgramPart> order = step.Order();
  const auto use = std::find_if(order.begin(), order.end(), [](const ProgramPart& part) { return part.use && part.run == 0; });
  const auto ready = std::find_if(order.begin(), order.end(), [](const ProgramPart& part) { return part.run == 2; });
  std::rotate(use, ready, ready + 1);
  EXPECT_THAT(std::string(step.Verify(order).message()),
              ::testing::AllOf(::testing::StartsWith("race"), ::testing::HasSubstr("the training's")));
}

// The slot is offered to peers while the training still computes with the unit that holds it.
TEST(ScheduleVerifierTest, SeesASlotOverwrittenThatIsInUse) {
  const TrainingStep step(4, 2);
  std::vector<ProgramPart> order = step.Order();
  const auto use = std::find_if(order.begin(), order.end(), [](const ProgramPart& part) { return part.use && part.run == 0; });
  const auto gather = std::find_if(order.begin(), order.end(), [](const ProgramPart& part) { return part.run == 2; });
  ASSERT_LT(use, gather);
  std::rotate(use, gather, gather + 1);  // unit 2 may come into slot 0, and then unit 0 is used
  EXPECT_THAT(std::string(step.Verify(order).message()),
              ::testing::AllOf(::testing::StartsWith("race"), ::testing::HasSubstr("the training's")));
}

TEST(ScheduleVerifierTest, SeesAReductionInASlotThatIsNotVacated) {
  const TrainingStep step(4, 2);
  std::vector<ProgramPart> order = step.Order();
  const auto use = std::find_if(order.begin(), order.end(), [](const ProgramPart& part) { return part.use && part.run == 5; });
  ASSERT_EQ((use + 1)->run, 9);
  std::iter_swap(use, use + 1);  // tells the peers that the slot is free, then computes
  EXPECT_THAT(std::string(step.Verify(order).message()),
              ::testing::AllOf(::testing::StartsWith("race"), ::testing::HasSubstr("reading of the parameters of 'layers.2'")));
}

}  // namespace
}  // namespace tidetape::collectives
