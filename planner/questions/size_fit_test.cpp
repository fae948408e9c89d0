#include "planner/questions/size_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace tidetape::planner {
namespace {

using Curve = std::function<double(double)>;

// One op that makes one storage; bytes, costs and bases follow the curves.
SizedRun RunOf(double size, const Curve& bytes, const Curve& seconds) {
  SizedRun run{.size = size, .plain_step_seconds = 10 * seconds(size)};
  BlockTape& tape = run.problem.tapes.emplace_back();
  tape.storages = {{.kind = StorageKind::kBlockInput}, {.bytes = static_cast<int64_t>(bytes(size)), .site = 3}};
  tape.ops = {{.name = "aten::mm", .cost_seconds = seconds(size), .reads = {0}, .writes = {1}}};
  tape.consumed = {1};
  run.problem.blocks = {{.name = "layers.0", .backward_base_bytes = 5000 + static_cast<int64_t>(bytes(size))}};
  return run;
}

double Line(double size) { return 64 + 128 * size; }
double Parabola(double size) { return 64 + 128 * size + 16 * size * size; }
double Time(double size) { return 1e-3 + 1e-4 * size; }

absl::StatusOr<SizeFit> Fit(const std::vector<double>& sizes, const Curve& bytes) {
  std::vector<SizedRun> runs;
  for (const double size : sizes) runs.push_back(RunOf(size, bytes, Time));
  return SizeFit::Create(std::move(runs));
}

TEST(SizeFit, TwoSizesGiveALineAndNoStatementOfItsResidual) {
  const auto fit = Fit({4, 8}, Line);
  ASSERT_TRUE(fit.ok()) << fit.status();
  const PlanningProblem at = fit->At(32);
  EXPECT_EQ(at.tapes[0].storages[1].bytes, 64 + 128 * 32);
  EXPECT_EQ(at.blocks[0].backward_base_bytes, 5000 + 64 + 128 * 32);
  EXPECT_NEAR(at.tapes[0].ops[0].cost_seconds, 4.2e-3, 1e-12);
  EXPECT_NEAR(fit->PlainStepSeconds(32), 4.2e-2, 1e-11);
  EXPECT_EQ(fit->degree(), 1);
  EXPECT_FALSE(fit->bytes_residual().has_value());
}

TEST(SizeFit, ThreeSizesOnALineStayALineWithItsResidual) {
  const auto fit = Fit({4, 8, 20}, Line);
  ASSERT_TRUE(fit.ok());
  EXPECT_EQ(fit->degree(), 1);
  EXPECT_EQ(fit->At(100).tapes[0].storages[1].bytes, 64 + 128 * 100);
  EXPECT_NEAR(fit->bytes_residual().value(), 0, 1e-12);
  EXPECT_NEAR(fit->seconds_residual().value(), 0, 1e-12);
}

TEST(SizeFit, AttentionIsAParabola) {
  const auto fit = Fit({4, 8, 20}, Parabola);
  ASSERT_TRUE(fit.ok());
  EXPECT_EQ(fit->degree(), 2);
  for (const double size : {1.0, 4.0, 8.0, 11.0, 20.0, 64.0}) {
    EXPECT_EQ(fit->At(size).tapes[0].storages[1].bytes, Parabola(size)) << size;
    EXPECT_NEAR(fit->At(size).tapes[0].ops[0].cost_seconds, Time(size), 1e-12) << size;
  }
  // A parabola goes through any three points, which says nothing.
  EXPECT_FALSE(fit->bytes_residual().has_value());
  const auto four = Fit({4, 8, 20, 32}, Parabola);
  ASSERT_TRUE(four.ok());
  EXPECT_NEAR(four->bytes_residual().value(), 0, 1e-9);
}

TEST(SizeFit, WhatFitsNoCurveIsSaid) {
  // Bytes 100, 100, 100, 200 over sizes 1 to 4. By the normal equations the parabola is 105, 85, 115, 195: 40 bytes off in all. The
  // base is 5000 larger, so that the line 5080, 5110, 5140, 5170 is within 1 % of it: 100 bytes off.
  const auto fit = Fit({1, 2, 3, 4}, [](double size) { return size < 4 ? 100 : 200; });
  ASSERT_TRUE(fit.ok());
  EXPECT_EQ(fit->degree(), 2);
  EXPECT_NEAR(static_cast<double>(fit->At(1).tapes[0].storages[1].bytes), 105, 0.5);
  EXPECT_NEAR(static_cast<double>(fit->At(2).tapes[0].storages[1].bytes), 85, 0.5);
  EXPECT_NEAR(static_cast<double>(fit->At(4).tapes[0].storages[1].bytes), 195, 0.5);
  EXPECT_EQ(fit->At(1).blocks[0].backward_base_bytes, 5080);
  EXPECT_NEAR(fit->bytes_residual().value(), 140.0 / (500 + 20500), 1e-9);
}

TEST(SizeFit, BytesAndSecondsNeverFallBelowZero) {
  const auto fit = Fit({4, 8}, [](double size) { return 100 * (size - 3); });
  ASSERT_TRUE(fit.ok());
  EXPECT_EQ(fit->At(1).tapes[0].storages[1].bytes, 0);
}

TEST(SizeFit, SaysWhatItCannotFit) {
  EXPECT_THAT(std::string(Fit({4}, Line).status().message()), testing::HasSubstr("two sizes"));
  EXPECT_THAT(std::string(Fit({4, 4}, Line).status().message()), testing::HasSubstr("two runs are of size 4"));
  EXPECT_THAT(std::string(Fit({0, 4}, Line).status().message()), testing::HasSubstr("above 0"));
  SizedRun other = RunOf(8, Line, Time);
  other.problem.tapes[0].ops[0].name = "aten::bmm";
  EXPECT_THAT(std::string(SizeFit::Create({RunOf(4, Line, Time), other}).status().message()), testing::HasSubstr("other blocks"));
}

TEST(SizeFit, AnUnknownStepTimeStaysUnknown) {
  std::vector<SizedRun> runs = {RunOf(4, Line, Time), RunOf(8, Line, Time)};
  runs[0].plain_step_seconds = 0;
  EXPECT_EQ(SizeFit::Create(runs)->PlainStepSeconds(8), 0);
}

}  // namespace
}  // namespace tidetape::planner
