#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "net/error_info.h"
#include "server/questions/job_queries.h"
#include "server/testing/planned_example.h"

namespace tidetape::server {
namespace {

using testing::HasSubstr;

TimeLeft Plenty() {
  return [] { return absl::Minutes(1); };
}

// The example with values of 50 bytes and ops of 5 and 0.5 ms an element of the batch; a plain step takes 0.1 s for each. The bases
// do not depend on it. Under 1300 bytes: with nothing saved, backward reaches 900 + 2 * 50 * batch, so a batch of 4 fits and one of
// 5 does not.
v1::BlockTape Tape(int batch, int sequence) {
  v1::BlockTape tape = ExampleTape();
  for (int i = 1; i <= 2; ++i) {
    tape.mutable_storages(i)->set_bytes(50 * batch * sequence / 4);
    tape.mutable_storages(i)->set_label(absl::StrCat("aten::op", i, "#0 [", batch, ", ", sequence, ", 8] Float"));
    tape.mutable_ops(i - 1)->set_cost_seconds((i == 1 ? 5e-3 : 5e-4) * batch);
  }
  return tape;
}

class LargestSizeTest : public testing::Test {
 protected:
  // A start of the job at this size, with its plan.
  void RunJob(int batch, int sequence = 4) {
    ++starts_;
    const v1::Hello hello = ExampleHello(0, 1, absl::StrCat("start", starts_), 10 + starts_);
    auto channel = std::make_shared<FakeRankChannel>();
    ASSERT_TRUE(example_.job()->Connect(hello, channel, ExpectStored()).ok());
    ASSERT_TRUE(example_.job()->AddTape(0, channel.get(), Tape(batch, sequence)).ok());
    v1::StepReport report = ExampleReport();
    report.set_step_seconds(0.1 * batch);
    ASSERT_TRUE(example_.job()->AddReport(0, channel.get(), report, ExpectStored()).ok());
    example_.Settle();
    ASSERT_NE(example_.job()->committed(), nullptr);
  }

  absl::StatusOr<v1::FindLargestSizeResponse> Ask(const std::string& axis = "", int64_t limit = 1300) {
    v1::FindLargestSizeRequest request;
    request.set_axis(axis);
    request.set_memory_limit_bytes(limit);
    return AnswerFindLargestSize(*example_.job(), request, Plenty());
  }

  PlannedExample example_;
  int starts_ = 0;
};

TEST_F(LargestSizeTest, OneSizeIsSaidToBeOne) {
  RunJob(2);
  const absl::Status status = Ask().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_EQ(net::ErrorInfoOf(status)->reason(), "ONE_SIZE");
  EXPECT_THAT(std::string(status.message()), HasSubstr("seen at one size only, [2, 4, 8]"));
}

TEST_F(LargestSizeTest, TheLargestBatchAndItsTimePerToken) {
  RunJob(1);
  RunJob(2);
  const auto answer = Ask();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->axis(), "batch");
  ASSERT_EQ(answer->measured_size(), 2);
  EXPECT_EQ(answer->measured(0).size(), 1);
  EXPECT_EQ(answer->measured(1).size(), 2);
  EXPECT_EQ(answer->measured(1).tokens(), 8);
  // The plan of batch 2 under 1300 bytes: one block replays its 1 ms.
  EXPECT_NEAR(answer->measured(1).replay_seconds(), 0.001, 1e-9);
  EXPECT_NEAR(answer->measured(1).step_seconds(), 0.2 + 0.001, 1e-6);
  const v1::SizedStep& largest = answer->largest();
  EXPECT_EQ(largest.size(), 4);
  EXPECT_EQ(largest.tokens(), 16);
  // 200 bytes are left at the head: the last block keeps what 20 ms made, and the rest is replayed.
  EXPECT_EQ(largest.step_peak_bytes(), 1300);
  EXPECT_NEAR(largest.replay_seconds(), 0.022 + 0.002, 1e-9);
  EXPECT_NEAR(largest.step_seconds(), 0.4 + 0.024, 1e-6);
  EXPECT_NEAR(largest.seconds_per_token(), 0.424 / 16, 1e-7);
  EXPECT_TRUE(answer->extrapolated());
  EXPECT_FALSE(answer->has_bytes_residual_ratio());
  EXPECT_THAT(answer->basis(), HasSubstr("lines through 2 sizes of batch, too few to say how far they are off"));
}

TEST_F(LargestSizeTest, ThreeSizesTellHowFarTheFitIsOff) {
  RunJob(1);
  RunJob(2);
  RunJob(3);
  const auto answer = Ask();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->measured_size(), 3);
  EXPECT_EQ(answer->largest().size(), 4);
  EXPECT_NEAR(answer->bytes_residual_ratio(), 0, 1e-9);
  EXPECT_NEAR(answer->seconds_residual_ratio(), 0, 1e-9);
}

TEST_F(LargestSizeTest, TheAnswerMayLieBelowWhatWasMeasured) {
  RunJob(2);
  RunJob(8);
  const auto answer = Ask();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->largest().size(), 4);
  EXPECT_FALSE(answer->extrapolated());
  EXPECT_FALSE(Ask("", 999)->has_largest());
}

TEST_F(LargestSizeTest, SequenceAndBatchAreApart) {
  RunJob(2, 4);
  RunJob(2, 8);
  const auto answer = Ask();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->axis(), "sequence");
  EXPECT_EQ(answer->largest().tokens(), 2 * answer->largest().size());
  // 900 + 2 * 25 * sequence bytes.
  EXPECT_EQ(answer->largest().size(), 8);
  EXPECT_EQ(net::ErrorInfoOf(Ask("batch").status())->reason(), "ONE_SIZE");
  EXPECT_EQ(Ask("sequence")->axis(), "sequence");
  EXPECT_TRUE(absl::IsInvalidArgument(Ask("width").status()));
  // Both at once: no line can be drawn through these.
  RunJob(4, 16);
  EXPECT_EQ(net::ErrorInfoOf(Ask().status())->reason(), "ONE_SIZE");
}

TEST_F(LargestSizeTest, WithoutALimitNothingIsLargest) {
  RunJob(1);
  RunJob(2);
  EXPECT_TRUE(absl::IsInvalidArgument(Ask("", 0).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Ask("", -1).status()));
}

}  // namespace
}  // namespace tidetape::server
