#include "collectives/transports/common/group_health.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidetape::collectives {
namespace {

using ::testing::HasSubstr;

TEST(GroupHealthTest, ALossBreaksTheGroupAndTheFirstOneIsNamed) {
  GroupHealth health(4);
  EXPECT_TRUE(health.Check(1).ok());
  health.ReportLost(2, "died");
  health.ReportLost(3, "died");
  EXPECT_EQ(health.Check(1).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(health.Check(1).message()), HasSubstr("rank 2 died"));
  EXPECT_EQ(health.lost_rank(), 2);
}

TEST(GroupHealthTest, LeavingBreaksOnlyCallsThatNameTheRank) {
  GroupHealth health(4);
  health.ReportLeft(2, -1);
  EXPECT_TRUE(health.Check(1).ok());
  EXPECT_TRUE(health.CheckGroup().ok());
  EXPECT_THAT(std::string(health.Check(2).message()), HasSubstr("rank 2 has left"));
}

TEST(GroupHealthTest, LeavingForALossNamesTheLostRank) {
  GroupHealth health(4);
  health.ReportLeft(2, 3);
  EXPECT_THAT(std::string(health.Check(1).message()), HasSubstr("rank 3 is lost, says rank 2"));
}

TEST(GroupHealthTest, WatchersSeeEveryReportUntilTheyAreRemoved) {
  GroupHealth health(4);
  int calls = 0;
  const int id = health.AddWatcher([&] { ++calls; });
  health.ReportLeft(0, -1);
  health.ReportLost(1, "died");
  EXPECT_EQ(calls, 2);
  health.RemoveWatcher(id);
  health.ReportLeft(3, -1);
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace tidetape::collectives
