#include "agent/session/option_measurements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidetape::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string> kLabels = {"lean", "half", "fast"};

class OptionMeasurementsTest : public ::testing::Test {
 protected:
  OptionMeasurementsTest() {
    for (const char* block : {"layers.0", "layers.1"}) options_.AddBlock(block, 1, 7, kLabels);
  }

  // A step in which each block runs what it is to run; returns the trial of the last one.
  int32_t Step() {
    for (const char* block : {"layers.0", "layers.1"}) {
      const int32_t option = options_.Trial(block);
      if (!options_.FirstExecution(block, option))
        options_.Add(block, {option, 100 * option, 0, 300 + 10 * option, 0.03 - 0.01 * option});
    }
    const int32_t trial = options_.Trial("layers.1");
    options_.NextStep();
    return trial;
  }

  OptionMeasurements options_;
};

TEST_F(OptionMeasurementsTest, OneBlockOfAKindTriesTheOptionsOneByOne) {
  std::vector<int32_t> trials;
  for (int step = 0; step < 12 && !options_.measured(); ++step) {
    EXPECT_EQ(options_.Trial("layers.0"), 0);
    trials.push_back(Step());
  }
  // First executions are no samples, and the first option has its samples from the other block.
  EXPECT_THAT(trials, ElementsAre(0, 1, 2, 1, 2, 1, 2, 1, 2));
  EXPECT_TRUE(options_.measured());
  EXPECT_EQ(Step(), 0);
}

TEST_F(OptionMeasurementsTest, ReportsTheMostMemoryAndTheMedianTimeAgainstTheFastest) {
  for (const double seconds : {0.05, 0.02, 0.09}) options_.Add("layers.0", {0, 10, 260, 300, seconds});
  options_.Add("layers.1", {0, 30, 250, 200, 0.05});
  for (int i = 0; i < 3; ++i) options_.Add("layers.1", {1, 100, 280, 310, 0.04});
  EXPECT_EQ(options_.ExtraSeconds("layers.0", 0.05), 0);  // not known yet
  for (int i = 0; i < 3; ++i) options_.Add("layers.1", {2, 200, 290, 320, 0.01});
  const std::vector<tt_block_option> reported = options_.Report("layers.0", -100);
  ASSERT_EQ(reported.size(), 3u);
  EXPECT_EQ(reported[0].saved_bytes, 30);
  EXPECT_EQ(reported[0].own_peak_bytes, 300);
  EXPECT_DOUBLE_EQ(reported[0].seconds, 0.04);
  EXPECT_STREQ(reported[1].label, "half");
  EXPECT_DOUBLE_EQ(reported[1].seconds, 0.03);
  EXPECT_EQ(reported[2].seconds, 0);
  EXPECT_DOUBLE_EQ(options_.ExtraSeconds("layers.0", 0.05), 0.04);
  // A forward that begins higher than its backward holds the own peak of the leanest option, and not of the others.
  EXPECT_EQ(options_.Report("layers.0", 45)[0].own_peak_bytes, 305);
  EXPECT_EQ(options_.Report("layers.0", 5)[2].own_peak_bytes, 320);
  EXPECT_EQ(options_.ForwardBytes("layers.0"), std::make_pair(int64_t{90}, int64_t{230}));
  EXPECT_THAT(options_.ToText("layers.1", 2), HasSubstr("  * fast: saves 200 bytes"));
}

TEST_F(OptionMeasurementsTest, KindsAreMeasuredApartAndForgottenWithTheirLastBlock) {
  options_.AddBlock("head", 2, 7, kLabels);
  for (int step = 0; step < 12; ++step) Step();
  EXPECT_FALSE(options_.measured());
  options_.RemoveBlock("head");
  EXPECT_TRUE(options_.measured());
  EXPECT_FALSE(options_.Has("head"));
  EXPECT_EQ(options_.Structure("layers.1"), 7u);
}

}  // namespace
}  // namespace tidetape::agent
