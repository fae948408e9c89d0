#include "server/job/known_runs.h"

#include <gtest/gtest.h>

#include "planner/io/problem_io.h"
#include "server/testing/example_job.h"

namespace tidetape::server {
namespace {

planner::PlanningProblem Problem() {
  planner::PlanningProblem problem;
  problem.tapes = {planner::FromProto(ExampleTape())};
  problem.tapes[0].backward.resize(1);
  problem.head_peak_bytes = 1000;
  problem.optimizer_peak_bytes = 500;
  problem.blocks = {{.name = "layers.0", .forward_base_bytes = 900, .backward_base_bytes = 900, .gradient_live_bytes = {50}}};
  return problem;
}

KnownRunKey Key(const planner::PlanningProblem& problem, const std::string& device = "cpu", const std::string& torch = "2.14.1") {
  return KeyOfRun(problem, {kExampleHash}, device, torch);
}

TEST(KeyOfRun, SaysStructureAndShapesApart) {
  const KnownRunKey key = Key(Problem());
  EXPECT_EQ(Key(Problem()), key);
  planner::PlanningProblem larger = Problem();
  larger.tapes[0].storages[1].bytes *= 2;
  EXPECT_EQ(Key(larger).structure, key.structure);
  EXPECT_NE(Key(larger).shapes, key.shapes);
  planner::PlanningProblem other_dtype = Problem();
  other_dtype.tapes[0].storages[1].label += " BFloat16";
  EXPECT_NE(Key(other_dtype).shapes, key.shapes);
  EXPECT_NE(Key(Problem(), "NVIDIA H200").structure, key.structure);
  EXPECT_NE(Key(Problem(), "cpu", "2.15.0").structure, key.structure);
  EXPECT_NE(KeyOfRun(Problem(), {kExampleHash, kExampleHash}, "cpu", "2.14.1").structure, key.structure);
  EXPECT_NE(KeyOfRun(Problem(), {1}, "cpu", "2.14.1").structure, key.structure);
}

TEST(KeyOfRun, WhatIsMeasuredIsNoPartOfIt) {
  planner::PlanningProblem measured = Problem();
  measured.tapes[0].ops[0].cost_seconds = 7;
  measured.blocks[0].backward_base_bytes = 7;
  measured.memory_limit_bytes = 7;
  EXPECT_EQ(Key(measured), Key(Problem()));
}

TEST(KeyOfRun, StaysTheSameInEveryProcess) {
  // What a server of another version has stored is found by it.
  const KnownRunKey empty = KeyOfRun(planner::PlanningProblem(), {}, "", "");
  // FNV-1a of sixteen zero bytes, the lengths of two empty texts; and of nothing.
  EXPECT_EQ(empty.structure, 0x88201fb960ff6465u);
  EXPECT_EQ(empty.shapes, 0xcbf29ce484222325u);
}

TEST(RaiseToKnown, TakesTheLargerOfBothAndTheKnownCosts) {
  planner::PlanningProblem known = Problem();
  known.head_peak_bytes = 1200;
  known.blocks[0].forward_base_bytes = 800;
  known.blocks[0].gradient_live_bytes = {70};
  known.tapes[0].ops[0].cost_seconds = 0.5;
  known.tapes[0].ops[0].replay_workspace_bytes = 64;
  known.tapes[0].storages[1].must_save = true;
  known.tapes[0].backward[0].gradient_live_bytes = 9;
  known.headroom = {.block_bytes = 30, .head_bytes = 20, .optimizer_bytes = 0};
  planner::PlanningProblem problem = Problem();
  problem.optimizer_peak_bytes = 600;
  problem.headroom.head_bytes = 25;
  problem.tapes[0].ops[1].replayable = false;
  ASSERT_TRUE(RaiseToKnown(known, problem).ok());
  EXPECT_EQ(problem.head_peak_bytes, 1200);
  EXPECT_EQ(problem.optimizer_peak_bytes, 600);
  EXPECT_EQ(problem.blocks[0].forward_base_bytes, 900);
  EXPECT_EQ(problem.blocks[0].gradient_live_bytes[0], 70);
  EXPECT_EQ(problem.tapes[0].ops[0].cost_seconds, 0.5);
  EXPECT_EQ(problem.tapes[0].ops[0].replay_workspace_bytes, 64);
  EXPECT_TRUE(problem.tapes[0].storages[1].must_save);
  EXPECT_FALSE(problem.tapes[0].ops[1].replayable);
  EXPECT_EQ(problem.tapes[0].backward[0].gradient_live_bytes, 9);
  EXPECT_EQ(problem.headroom.block_bytes, 30);
  EXPECT_EQ(problem.headroom.head_bytes, 25);
}

TEST(RaiseToKnown, OtherBlocksAreRefusedAndChangeNothing) {
  const auto refused = [](auto change) {
    planner::PlanningProblem known = Problem();
    known.head_peak_bytes = 5000;
    change(known);
    planner::PlanningProblem problem = Problem();
    return absl::IsFailedPrecondition(RaiseToKnown(known, problem)) && problem.head_peak_bytes == 1000;
  };
  EXPECT_TRUE(refused([](auto& known) { known.tapes[0].storages[1].bytes = 7; }));
  EXPECT_TRUE(refused([](auto& known) { known.tapes[0].ops.pop_back(); }));
  EXPECT_TRUE(refused([](auto& known) { known.tapes[0].backward.clear(); }));
  EXPECT_TRUE(refused([](auto& known) { known.tapes.clear(); }));
  EXPECT_TRUE(refused([](auto& known) { known.blocks.clear(); }));
  EXPECT_TRUE(refused([](auto& known) { known.blocks[0].gradient_live_bytes.clear(); }));
  EXPECT_TRUE(refused([](auto& known) { known.blocks[0].options.emplace_back(); }));
}

TEST(AddToBases, RaisesEveryBase) {
  planner::PlanningProblem problem = Problem();
  AddToBases(11, problem);
  EXPECT_EQ(problem.head_peak_bytes, 1011);
  EXPECT_EQ(problem.optimizer_peak_bytes, 511);
  EXPECT_EQ(problem.blocks[0].forward_base_bytes, 911);
  EXPECT_EQ(problem.blocks[0].backward_base_bytes, 911);
}

}  // namespace
}  // namespace tidetape::server
