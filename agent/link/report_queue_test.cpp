#include "agent/link/report_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidetape::link {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::shared_ptr<const StepReport> Step(int64_t step) {
  auto report = std::make_shared<StepReport>();
  report->step = step;
  return report;
}

// Takes out all that waits, under sequence numbers from `sequence` on.
std::vector<int64_t> Drain(ReportQueue& queue, int64_t sequence = 1) {
  std::vector<int64_t> steps;
  while (const auto report = queue.Next(sequence++)) steps.push_back(report->step);
  return steps;
}

TEST(ReportQueue, DropsTheOldestAndCounts) {
  ReportQueue queue(3);
  for (int64_t step = 0; step < 3; ++step) EXPECT_TRUE(queue.Push(Step(step)));
  EXPECT_FALSE(queue.Push(Step(3)));
  EXPECT_FALSE(queue.Push(Step(4)));
  EXPECT_EQ(queue.dropped(), 2);
  EXPECT_THAT(Drain(queue), ElementsAre(2, 3, 4));
  EXPECT_EQ(queue.sent(), 3);
}

TEST(ReportQueue, SendsAgainWhatWasNotAcknowledged) {
  ReportQueue queue(10);
  for (int64_t step = 0; step < 4; ++step) queue.Push(Step(step));
  EXPECT_THAT(Drain(queue, 5), ElementsAre(0, 1, 2, 3));  // sequences 5 to 8
  queue.Acknowledge(6);
  queue.Push(Step(4));
  queue.Requeue();
  EXPECT_EQ(queue.sent(), 2);
  EXPECT_THAT(Drain(queue), ElementsAre(2, 3, 4));
  EXPECT_EQ(queue.dropped(), 0);
}

TEST(ReportQueue, AServerThatNeverAcknowledgesCostsBoundedMemory) {
  ReportQueue queue(3);
  std::weak_ptr<const StepReport> first;
  for (int64_t step = 0; step < 100; ++step) {
    auto report = Step(step);
    if (step == 0) first = report;
    queue.Push(std::move(report));
    Drain(queue, step + 1);
  }
  EXPECT_TRUE(first.expired());
  EXPECT_EQ(queue.sent(), 100);
  EXPECT_EQ(queue.dropped(), 0);
  queue.Requeue();
  EXPECT_THAT(Drain(queue), ElementsAre(97, 98, 99));
}

TEST(ReportQueue, RequeueingKeepsTheBoundAndTheNewest) {
  ReportQueue queue(3);
  for (int64_t step = 0; step < 3; ++step) queue.Push(Step(step));
  Drain(queue);
  for (int64_t step = 3; step < 5; ++step) queue.Push(Step(step));
  queue.Requeue();
  EXPECT_EQ(queue.dropped(), 2);
  EXPECT_THAT(Drain(queue), ElementsAre(2, 3, 4));
}

TEST(ReportQueue, DiscardedReportsAreCountedAsDropped) {
  ReportQueue queue(3);
  queue.Push(Step(0));
  queue.Push(Step(1));
  queue.Next(1);
  queue.Discard();
  EXPECT_EQ(queue.dropped(), 1);
  EXPECT_EQ(queue.sent(), 0);
  queue.Requeue();
  EXPECT_THAT(Drain(queue), ElementsAre(1));
  queue.Clear();
  queue.Requeue();
  EXPECT_THAT(Drain(queue), IsEmpty());
}

}  // namespace
}  // namespace tidetape::link
