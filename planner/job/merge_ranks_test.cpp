#include "planner/job/merge_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/model/plan.h"

namespace tidetape::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two ops and two backward events, so that costs and intervals have a size to fit.
BlockTape MakeTape(uint64_t hash, const std::string& name) {
  BlockTape tape;
  tape.name = name;
  tape.structure_hash = hash;
  tape.storages.resize(2);
  tape.ops.resize(2);
  for (int32_t i = 0; i < 2; ++i) {
    tape.storages[i].bytes = 100;
    tape.ops[i].writes = {i};
    tape.ops[i].cost_seconds = 0.5;
    tape.ops[i].replay_workspace_bytes = 7;
  }
  tape.backward.resize(2);
  return tape;
}

MemoryProfile MakeProfile(const std::vector<uint64_t>& hashes, int64_t base) {
  MemoryProfile profile;
  profile.steady = true;
  profile.head_peak_bytes = 10 * base;
  profile.optimizer_peak_bytes = 20 * base;
  for (uint64_t hash : hashes) {
    ProfiledBlock& block = profile.blocks.emplace_back();
    block.structure_hash = hash;
    block.instance.name = "layers." + std::to_string(profile.blocks.size() - 1);
    block.instance.forward_base_bytes = base;
    block.instance.backward_base_bytes = 2 * base;
    block.instance.gradient_live_bytes = {base, 3};
  }
  return profile;
}

class MergeRanksTest : public ::testing::Test {
 protected:
  TapesByHash tapes_ = {{1, MakeTape(1, "a")}, {2, MakeTape(2, "b")}};
  CostsByHash no_costs_;
};

TEST_F(MergeRanksTest, ListsEachTapeOnceAndPointsBlocksAtIt) {
  const MemoryProfile profile = MakeProfile({2, 1, 2}, 5);
  const auto problem = MergeRanks(tapes_, {{0, &profile, &no_costs_}}, 1000);
  ASSERT_TRUE(problem.ok()) << problem.status();
  ASSERT_EQ(problem->tapes.size(), 2u);
  EXPECT_EQ(problem->tapes[0].structure_hash, 2u);
  EXPECT_EQ(problem->tapes[1].structure_hash, 1u);
  ASSERT_EQ(problem->blocks.size(), 3u);
  EXPECT_EQ(problem->blocks[0].tape, 0);
  EXPECT_EQ(problem->blocks[1].tape, 1);
  EXPECT_EQ(problem->blocks[2].tape, 0);
  EXPECT_EQ(problem->blocks[2].name, "layers.2");
  EXPECT_EQ(problem->memory_limit_bytes, 1000);
  EXPECT_EQ(problem->head_peak_bytes, 50);
  EXPECT_EQ(problem->optimizer_peak_bytes, 100);
}

TEST_F(MergeRanksTest, TakesTheWorstMemoryOfAnyRank) {
  MemoryProfile first = MakeProfile({1}, 5);
  MemoryProfile second = MakeProfile({1}, 4);
  second.blocks[0].instance.backward_base_bytes = 90;
  second.blocks[0].instance.gradient_live_bytes = {1, 8};
  second.optimizer_peak_bytes = 1;
  second.head_peak_bytes = 1000;
  first.headroom = {.block_bytes = 3, .head_bytes = 7, .optimizer_bytes = 2};
  second.headroom = {.block_bytes = 2, .head_bytes = 9, .optimizer_bytes = 0};
  const auto problem = MergeRanks(tapes_, {{0, &first, &no_costs_}, {1, &second, &no_costs_}}, 0);
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(problem->blocks[0].forward_base_bytes, 5);
  EXPECT_EQ(problem->blocks[0].backward_base_bytes, 90);
  EXPECT_THAT(problem->blocks[0].gradient_live_bytes, ElementsAre(5, 8));
  EXPECT_EQ(problem->head_peak_bytes, 1000);
  EXPECT_EQ(problem->optimizer_peak_bytes, 100);
  // What the rank with less of it does not hold free, it may need.
  EXPECT_EQ(problem->headroom.block_bytes, 2);
  EXPECT_EQ(problem->headroom.head_bytes, 7);
  EXPECT_EQ(problem->headroom.optimizer_bytes, 0);
}

TEST_F(MergeRanksTest, MovesWhatAllRanksMayMoveAsTheWorstOfThemCan) {
  for (const uint64_t site : {7, 8, 9}) {
    tapes_[1].storages.push_back({.bytes = 10, .kind = StorageKind::kBlockInput, .site = site});
  }
  MemoryProfile first = MakeProfile({1, 1}, 5);
  MemoryProfile second = MakeProfile({1, 1}, 5);
  first.blocks[0].held_inputs = {9, 7};
  second.blocks[0].held_inputs = {8, 9};
  first.blocks[1].held_inputs = {7};
  first.host_bytes_limit = 100, first.host_bytes_per_second = 3;
  second.host_bytes_limit = 200, second.host_bytes_per_second = 2;
  const auto problem = MergeRanks(tapes_, {{0, &first, &no_costs_}, {1, &second, &no_costs_}}, 0);
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_THAT(problem->blocks[0].held_inputs, ElementsAre(4));
  EXPECT_THAT(problem->blocks[1].held_inputs, ElementsAre());
  EXPECT_EQ(problem->host_bytes_limit, 100);
  EXPECT_EQ(problem->host_bytes_per_second, 2);
  const auto alone = MergeRanks(tapes_, {{0, &first, &no_costs_}}, 0);
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_THAT(alone->blocks[0].held_inputs, ElementsAre(2, 4));
}

TEST_F(MergeRanksTest, TakesTheScheduleOfAllRanks) {
  MemoryProfile first = MakeProfile({1, 1}, 5);
  first.schedule = {{Phase::kForward, 0}, {Phase::kForward, 1}, {Phase::kHead}, {Phase::kBackward, 0}, {Phase::kBackward, 1}};
  MemoryProfile second = first;
  const auto same = MergeRanks(tapes_, {{0, &first, &no_costs_}, {1, &second, &no_costs_}}, 0);
  ASSERT_TRUE(same.ok()) << same.status();
  ASSERT_EQ(same->schedule.size(), 5u);
  EXPECT_EQ(same->schedule[3].phase, Phase::kBackward);
  EXPECT_EQ(same->schedule[3].block, 0);
  second.schedule.clear();
  const auto other = MergeRanks(tapes_, {{0, &first, &no_costs_}, {1, &second, &no_costs_}}, 0);
  EXPECT_THAT(other.status().message(), HasSubstr("rank 1 runs its blocks forward and backward in another order than rank 0"));
}

TEST_F(MergeRanksTest, TakesTheMedianCostOfTheRanksThatMeasuredIt) {
  const MemoryProfile profile = MakeProfile({1}, 5);
  const CostsByHash costs[3] = {{{1, {1, {1.0, -1}, {10, 99}}}}, {{1, {1, {9.0, -1}, {30, 99}}}}, {{1, {1, {2.0, -1}, {20, 99}}}}};
  const auto three = MergeRanks(tapes_, {{0, &profile, &costs[0]}, {1, &profile, &costs[1]}, {2, &profile, &costs[2]}}, 0);
  ASSERT_TRUE(three.ok()) << three.status();
  EXPECT_EQ(three->tapes[0].ops[0].cost_seconds, 2.0);
  EXPECT_EQ(three->tapes[0].ops[0].replay_workspace_bytes, 30);
  // Nobody measured the second op: the tape's own cost stands.
  EXPECT_EQ(three->tapes[0].ops[1].cost_seconds, 0.5);
  EXPECT_EQ(three->tapes[0].ops[1].replay_workspace_bytes, 7);
  const auto two = MergeRanks(tapes_, {{0, &profile, &costs[0]}, {1, &profile, &costs[2]}}, 0);
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(two->tapes[0].ops[0].cost_seconds, 1.5);
}

TEST_F(MergeRanksTest, MinusOneKeepsEverything) {
  const MemoryProfile profile = MakeProfile({1}, 5);
  EXPECT_EQ(MergeRanks(tapes_, {{0, &profile, &no_costs_}}, -1)->memory_limit_bytes, kUnlimitedBytes);
  EXPECT_EQ(LimitForPlanner(0), 0);
  EXPECT_EQ(LimitForPlanner(5), 5);
}

TEST_F(MergeRanksTest, NamesWhatIsMissing) {
  const MemoryProfile profile = MakeProfile({3, 1, 4, 3}, 5);
  EXPECT_THAT(MissingTapes(profile, tapes_), ElementsAre(3, 4));
  const auto problem = MergeRanks(tapes_, {{0, &profile, &no_costs_}}, 0);
  EXPECT_EQ(problem.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(problem.status().message(), HasSubstr("0000000000000003 of block layers.0"));
}

TEST_F(MergeRanksTest, RefusesRanksThatRanDifferentBlocks) {
  const MemoryProfile first = MakeProfile({1, 2}, 5);
  const MemoryProfile other = MakeProfile({1, 1}, 5);
  const auto problem = MergeRanks(tapes_, {{0, &first, &no_costs_}, {3, &other, &no_costs_}}, 0);
  EXPECT_EQ(problem.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(problem.status().message(), HasSubstr("block 1 (layers.1)"));
  EXPECT_THAT(problem.status().message(), HasSubstr("on rank 3"));
  const MemoryProfile shorter = MakeProfile({1}, 5);
  EXPECT_FALSE(MergeRanks(tapes_, {{0, &first, &no_costs_}, {3, &shorter, &no_costs_}}, 0).ok());
  EXPECT_FALSE(MergeRanks(tapes_, {}, 0).ok());
}

TEST_F(MergeRanksTest, RefusesMeasurementsThatDoNotFitTheTape) {
  MemoryProfile profile = MakeProfile({1}, 5);
  const CostsByHash costs = {{1, {1, {1.0}, {10}}}};
  EXPECT_EQ(MergeRanks(tapes_, {{0, &profile, &costs}}, 0).status().code(), absl::StatusCode::kInvalidArgument);
  profile.blocks[0].instance.start_live_bytes = {1, 2, 3};
  EXPECT_EQ(MergeRanks(tapes_, {{0, &profile, &no_costs_}}, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(UpdateCosts, KeepsWhatTheUpdateDidNotMeasure) {
  CostsByHash known;
  UpdateCosts({1, {1.0, -1}, {10, 0}}, known);
  UpdateCosts({1, {-1, 4.0}, {0, 40}}, known);
  EXPECT_THAT(known[1].cost_seconds, ElementsAre(1.0, 4.0));
  EXPECT_THAT(known[1].replay_workspace_bytes, ElementsAre(10, 40));
  UpdateCosts({1, {3.0, -1}, {30, 0}}, known);
  EXPECT_THAT(known[1].cost_seconds, ElementsAre(3.0, 4.0));
  EXPECT_THAT(known[1].replay_workspace_bytes, ElementsAre(30, 40));
}

MemoryProfile WithOptions(std::vector<BlockOption> options) {
  MemoryProfile profile = MakeProfile({1}, 5);
  profile.blocks[0].structure_hash = 77;  // no tape
  profile.blocks[0].instance.gradient_live_bytes.clear();
  profile.blocks[0].instance.options = std::move(options);
  return profile;
}

TEST_F(MergeRanksTest, OptionsHaveTheWorstMemoryAndTheMedianSeconds) {
  const MemoryProfile a = WithOptions({{10, 50, 0.1, "lean"}, {40, 60, 0.0, "fast"}});
  const MemoryProfile b = WithOptions({{20, 40, 0.3, "lean"}, {30, 70, 0.0, "fast"}});
  const MemoryProfile c = WithOptions({{15, 45, 0.9, "lean"}, {35, 65, 0.2, "fast"}});
  const auto problem = MergeRanks(tapes_, {{0, &a, &no_costs_}, {1, &b, &no_costs_}, {2, &c, &no_costs_}}, 1000);
  ASSERT_TRUE(problem.ok()) << problem.status();
  const std::vector<BlockOption>& options = problem->blocks[0].options;
  ASSERT_EQ(options.size(), 2u);
  EXPECT_EQ(options[0].saved_bytes, 20);
  EXPECT_EQ(options[0].own_peak_bytes, 50);
  EXPECT_EQ(options[0].seconds, 0.3);
  EXPECT_EQ(options[1].saved_bytes, 40);
  EXPECT_EQ(options[1].own_peak_bytes, 70);
  EXPECT_EQ(options[1].seconds, 0.0);
  EXPECT_TRUE(problem->tapes.empty());
}

TEST_F(MergeRanksTest, RefusesRanksWithOtherOptions) {
  const MemoryProfile first = WithOptions({{10, 50, 0.3, "lean"}, {40, 60, 0.0, "fast"}});
  for (const auto& [options, told] :
       {std::pair<std::vector<BlockOption>, std::string>{{{10, 50, 0.3, "lean"}}, "options 'lean' on rank 1"},
        {{{40, 60, 0.0, "fast"}, {10, 50, 0.3, "lean"}}, "options 'fast', 'lean' on rank 1"},
        {{}, "a tape on rank 1"}}) {
    const MemoryProfile second = WithOptions(options);
    const auto problem = MergeRanks(tapes_, {{0, &first, &no_costs_}, {1, &second, &no_costs_}}, 1000);
    EXPECT_EQ(problem.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(problem.status().message()), HasSubstr(told));
    EXPECT_THAT(std::string(problem.status().message()), HasSubstr("layers.0"));
  }
}

}  // namespace
}  // namespace tidetape::planner
