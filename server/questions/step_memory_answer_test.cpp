#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/questions/job_queries.h"
#include "server/testing/planned_example.h"

namespace tidetape::server {
namespace {

TEST(StepMemoryAnswer, PredictsEachPartByTheDesignsFormula) {
  PlannedExample example;
  example.Plan();
  const auto memory = AnswerGetStepMemory(*example.job());
  ASSERT_TRUE(memory.ok()) << memory.status();
  // Of the two blocks, one keeps 200 bytes and one 100 and replays the rest; both reach 200 of their own in backward.
  const int64_t first = example.job()->committed()->blocks(0).saved_bytes();
  const std::pair<v1::PeakHolder::Phase, int64_t> expected[] = {
      {v1::PeakHolder::PHASE_FORWARD, 900 + first}, {v1::PeakHolder::PHASE_FORWARD, 900 + 300},
      {v1::PeakHolder::PHASE_HEAD, 1000 + 300},     {v1::PeakHolder::PHASE_BACKWARD, 900 + first + 200},
      {v1::PeakHolder::PHASE_BACKWARD, 900 + 200},  {v1::PeakHolder::PHASE_OPTIMIZER, 500},
  };
  ASSERT_EQ(memory->intervals_size(), 6);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(memory->intervals(i).place().phase(), expected[i].first) << i;
    EXPECT_EQ(memory->intervals(i).predicted_peak_bytes(), expected[i].second) << i;
    EXPECT_FALSE(memory->intervals(i).has_measured_begin_bytes());
  }
  EXPECT_EQ(memory->intervals(3).place().name(), "layers.1");
  EXPECT_EQ(memory->intervals(4).place().name(), "layers.0");
  EXPECT_EQ(memory->predicted_step_peak_bytes(), 1300);
  EXPECT_FALSE(memory->has_measured_rank());
}

TEST(StepMemoryAnswer, MarksOfTheWorstRankLieAtTheBlocksEnds) {
  PlannedExample example(2);
  example.Plan();
  v1::StepReport report = ExampleReport(7);
  report.set_generation(1);
  report.set_step_peak_bytes(1290);
  for (const int64_t bytes : {10, 20, 30, 40, 50, 60, 70, 80}) report.add_live_bytes(bytes);
  example.Report(1, report);
  report.set_step_peak_bytes(1280);
  for (int64_t& bytes : *report.mutable_live_bytes()) bytes += 1;
  example.Report(0, report);
  example.Report(1, ExampleReport(8));  // a step that was not measured
  const auto memory = AnswerGetStepMemory(*example.job());
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->measured_rank(), 1);
  EXPECT_EQ(memory->measured_node(), "node1");
  EXPECT_EQ(memory->measured_step(), 7);
  EXPECT_EQ(memory->measured_generation(), 1);
  EXPECT_EQ(memory->measured_step_peak_bytes(), 1290);
  const std::vector<std::pair<int64_t, int64_t>> expected = {{10, 20}, {30, 40}, {}, {50, 60}, {70, 80}, {}};
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(memory->intervals(i).measured_begin_bytes(), expected[i].first) << i;
    EXPECT_EQ(memory->intervals(i).measured_end_bytes(), expected[i].second) << i;
  }
  EXPECT_FALSE(memory->intervals(2).has_measured_begin_bytes());
}

TEST(StepMemoryAnswer, OfSeveralMicroBatchesTheLargestCounts) {
  PlannedExample example;
  example.Plan();
  v1::StepReport report = ExampleReport(2);
  for (const int64_t bytes : {10, 20, 30, 40, 50, 60, 70, 80, 11, 19, 31, 41, 51, 59, 69, 81}) report.add_live_bytes(bytes);
  example.Report(0, report);
  const auto memory = AnswerGetStepMemory(*example.job());
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->intervals(0).measured_begin_bytes(), 11);
  EXPECT_EQ(memory->intervals(0).measured_end_bytes(), 20);
  EXPECT_EQ(memory->intervals(4).measured_begin_bytes(), 70);
  EXPECT_EQ(memory->intervals(4).measured_end_bytes(), 81);
}

TEST(StepMemoryAnswer, MarksThatFitNoBlocksAreLeftOut) {
  PlannedExample example;
  example.Plan();
  v1::StepReport report = ExampleReport(2);
  for (const int64_t bytes : {10, 20, 30}) report.add_live_bytes(bytes);
  example.Report(0, report);
  const auto memory = AnswerGetStepMemory(*example.job());
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->measured_rank(), 0);
  for (const v1::IntervalMemory& interval : memory->intervals()) EXPECT_FALSE(interval.has_measured_end_bytes());
}

TEST(StepMemoryAnswer, NeedsAPlan) {
  PlannedExample example;
  EXPECT_TRUE(absl::IsFailedPrecondition(AnswerGetStepMemory(*example.job()).status()));
}

}  // namespace
}  // namespace tidetape::server
