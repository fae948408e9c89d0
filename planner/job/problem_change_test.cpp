#include "planner/job/problem_change.h"

#include <gtest/gtest.h>

namespace tidetape::planner {
namespace {

// Two blocks of one tape: a matrix product and an addition.
PlanningProblem Problem() {
  PlanningProblem problem;
  problem.head_peak_bytes = 1000;
  problem.optimizer_peak_bytes = 500;
  BlockTape& tape = problem.tapes.emplace_back();
  tape.ops = {{.name = "aten::mm", .cost_seconds = 0.010}, {.name = "aten::add", .cost_seconds = 0.001}};
  for (const char* name : {"layers.0", "layers.1"}) {
    problem.blocks.push_back({.name = name, .forward_base_bytes = 800, .backward_base_bytes = 900});
  }
  return problem;
}

TEST(ProblemChange, NothingIsSaidOfWhatStayed) {
  EXPECT_EQ(ProblemDigest(Problem()).LargestMemoryChange(ProblemDigest(Problem())), "");
  EXPECT_EQ(ProblemDigest(Problem()).LargestCostChange(ProblemDigest(Problem())), "");
}

TEST(ProblemChange, TheBaseThatMovedFarthestIsNamed) {
  PlanningProblem now = Problem();
  now.head_peak_bytes = 1050;
  now.blocks[1].backward_base_bytes = 700;
  EXPECT_EQ(ProblemDigest(Problem()).LargestMemoryChange(ProblemDigest(now)),
            "the backward base of layers.1 went from 900 to 700 bytes");
}

TEST(ProblemChange, CostsOfAnOpAreSummedOverTheStep) {
  PlanningProblem now = Problem();
  now.tapes[0].ops[0].cost_seconds = 0.012;
  now.tapes[0].ops[1].cost_seconds = 0.0025;
  EXPECT_EQ(ProblemDigest(Problem()).LargestCostChange(ProblemDigest(now)),
            "aten::mm takes 0.024000 s a step instead of 0.020000 s");
}

TEST(ProblemChange, WhatIsNewIsNoChange) {
  PlanningProblem now = Problem();
  now.blocks[1].name = "layers.9";
  now.tapes[0].ops[0].name = "aten::bmm";
  EXPECT_EQ(ProblemDigest(Problem()).LargestMemoryChange(ProblemDigest(now)), "");
  EXPECT_EQ(ProblemDigest(Problem()).LargestCostChange(ProblemDigest(now)), "");
}

}  // namespace
}  // namespace tidetape::planner
