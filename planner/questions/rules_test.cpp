#include "planner/questions/rules.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidetape::planner {
namespace {

using testing::HasSubstr;

// Two kinds of names on one tape: x -mm-> a -gelu-> b -mm-> c, all read by backward in reverse order.
PlanningProblem Layers() {
  BlockTape tape{.name = "layer"};
  tape.storages = {{.bytes = 10, .kind = StorageKind::kBlockInput}, {.bytes = 10}, {.bytes = 10}, {.bytes = 10}};
  tape.ops = {{.name = "aten::mm", .cost_seconds = 4, .reads = {0}, .writes = {1}},
              {.name = "aten::gelu", .cost_seconds = 1, .reads = {1}, .writes = {2}},
              {.name = "aten::mm", .cost_seconds = 4, .reads = {2}, .writes = {3}}};
  tape.consumed = {3, 2, 1};
  PlanningProblem problem;
  problem.tapes = {tape};
  problem.blocks = {{.name = "layers.0"}, {.name = "layers.1"}, {.name = "head"}};
  return problem;
}

TEST(RulesTest, MarkWhatTheOpsMakeInTheBlocksThatTheyName) {
  const auto ruled = WithRules(Layers(), {{RuleAction::kSave, "aten::mm"}, {RuleAction::kReplay, "*gelu", "layers.?"}});
  ASSERT_TRUE(ruled.ok()) << ruled.status();
  EXPECT_EQ(ruled->blocks[0].tape, ruled->blocks[1].tape);
  EXPECT_NE(ruled->blocks[0].tape, ruled->blocks[2].tape);
  const BlockTape &layer = ruled->tapes[ruled->blocks[0].tape], &head = ruled->tapes[ruled->blocks[2].tape];
  for (const BlockTape* tape : {&layer, &head}) {
    EXPECT_TRUE(tape->storages[1].must_save && tape->storages[3].must_save);
    EXPECT_FALSE(tape->storages[0].must_save);
  }
  EXPECT_TRUE(layer.storages[2].must_recompute);
  EXPECT_FALSE(head.storages[2].must_recompute);
}

TEST(RulesTest, TheLastOfSeveralHolds) {
  const auto ruled = WithRules(Layers(), {{RuleAction::kSave, "*"}, {RuleAction::kReplay, "aten::gelu"}});
  ASSERT_TRUE(ruled.ok()) << ruled.status();
  EXPECT_TRUE(ruled->tapes[ruled->blocks[0].tape].storages[2].must_recompute);
  EXPECT_FALSE(ruled->tapes[ruled->blocks[0].tape].storages[2].must_save);
}

TEST(RulesTest, ARuleThatFitsNothingIsNamed) {
  const auto ruled = WithRules(Layers(), {{RuleAction::kSave, "aten::softmax"}});
  EXPECT_EQ(ruled.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ruled.status().message()), HasSubstr("save 'aten::softmax' in blocks '*' fits no storage"));
}

TEST(RulesTest, APinCostsWhatItTakesFromOthers) {
  PlanningProblem problem = Layers();
  problem.blocks.resize(1);
  problem.head_peak_bytes = 100;
  problem.memory_limit_bytes = 120;  // 20 bytes may be saved: both products, so that the gelu is replayed
  const auto price = PriceRules(problem, {{RuleAction::kSave, "aten::gelu"}}, {.visits = 1'000'000});
  ASSERT_TRUE(price.ok()) << price.status();
  EXPECT_EQ(price->without.replay_seconds, 1);
  EXPECT_EQ(price->with.replay_seconds, 4);  // one product is replayed instead
  EXPECT_EQ(price->with.saved_bytes, 20);
}

}  // namespace
}  // namespace tidetape::planner
