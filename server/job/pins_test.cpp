#include "server/job/pins.h"

#include <gtest/gtest.h>

namespace tidetape::server {
namespace {

planner::PlanningProblem TwoLayers() {
  planner::PlanningProblem problem;
  planner::BlockTape tape;
  tape.storages = {{.bytes = 1, .kind = planner::StorageKind::kBlockInput, .label = "input"},
                   {.bytes = 2, .label = "aten::mm [2]"},
                   {.bytes = 3, .label = "aten::gelu [3]"},
                   {.bytes = 4, .must_save = true, .label = "aten::mm#1 [4]"}};
  problem.tapes = {tape};
  problem.blocks.resize(2);
  problem.blocks[0].name = "model.layers.0";
  problem.blocks[1].name = "model.layers.1";
  return problem;
}

google::protobuf::RepeatedPtrField<v1::Pin> Pins(std::initializer_list<std::tuple<const char*, const char*, v1::Action>> pins) {
  google::protobuf::RepeatedPtrField<v1::Pin> list;
  for (const auto& [block, label, action] : pins) {
    v1::Pin* pin = list.Add();
    pin->set_block_glob(block);
    pin->set_label_glob(label);
    pin->set_action(action);
  }
  return list;
}

const planner::Storage& StorageOf(const planner::PlanningProblem& problem, int block, int storage) {
  return problem.tapes[problem.blocks[block].tape].storages[storage];
}

TEST(ApplyPins, NoPinsChangeNothing) {
  planner::PlanningProblem problem = TwoLayers();
  EXPECT_EQ(ApplyPins({}, problem), 0);
  EXPECT_EQ(problem.tapes.size(), 1);
}

TEST(ApplyPins, ALabelPinsAllBlocksOnOneTape) {
  planner::PlanningProblem problem = TwoLayers();
  EXPECT_EQ(ApplyPins(Pins({{"", "aten::mm*", v1::ACTION_SAVE}}), problem), 2);
  EXPECT_EQ(problem.blocks[0].tape, problem.blocks[1].tape);
  EXPECT_TRUE(StorageOf(problem, 0, 1).must_save);
  EXPECT_FALSE(StorageOf(problem, 0, 2).must_save);
}

TEST(ApplyPins, ABlockPinLeavesItsTwinAlone) {
  planner::PlanningProblem problem = TwoLayers();
  EXPECT_EQ(ApplyPins(Pins({{"*.1", "aten::gelu*", v1::ACTION_REPLAY}}), problem), 1);
  EXPECT_FALSE(StorageOf(problem, 0, 2).must_recompute);
  EXPECT_TRUE(StorageOf(problem, 1, 2).must_recompute);
}

TEST(ApplyPins, TheLaterPinWins) {
  planner::PlanningProblem problem = TwoLayers();
  ApplyPins(Pins({{"*", "", v1::ACTION_SAVE}, {"", "aten::gelu*", v1::ACTION_REPLAY}}), problem);
  EXPECT_TRUE(StorageOf(problem, 0, 1).must_save);
  EXPECT_FALSE(StorageOf(problem, 0, 2).must_save);
  EXPECT_TRUE(StorageOf(problem, 0, 2).must_recompute);
}

TEST(ApplyPins, InputsAndWhatCannotBeReplayedAreLeftAlone) {
  planner::PlanningProblem problem = TwoLayers();
  ApplyPins(Pins({{"*", "*", v1::ACTION_REPLAY}}), problem);
  EXPECT_FALSE(StorageOf(problem, 0, 0).must_recompute);
  EXPECT_TRUE(StorageOf(problem, 0, 3).must_save);
  EXPECT_FALSE(StorageOf(problem, 0, 3).must_recompute);
}

TEST(ApplyPins, BlocksWithOptionsHaveNothingToPin) {
  planner::PlanningProblem problem = TwoLayers();
  problem.blocks[0].options.resize(1);
  EXPECT_EQ(ApplyPins(Pins({{"model.layers.0", "", v1::ACTION_SAVE}}), problem), 0);
}

}  // namespace
}  // namespace tidetape::server
