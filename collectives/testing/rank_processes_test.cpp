#include "collectives/testing/rank_processes.h"

#include <signal.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace tidetape::collectives {
namespace {

TEST(RankProcessesTest, EachRankSaysHowItEnded) {
  const auto outcomes = RunRanks(4, absl::Seconds(2), [](int rank) -> absl::Status {
    if (rank == 1) return absl::DataLossError(absl::StrCat("rank ", rank, "\nsecond line"));
    if (rank == 2) raise(SIGKILL);
    if (rank == 3) absl::SleepFor(absl::Seconds(600));
    return absl::OkStatus();
  });
  EXPECT_TRUE(outcomes[0].status.ok());
  EXPECT_EQ(outcomes[1].status, absl::DataLossError("rank 1\nsecond line"));
  EXPECT_EQ(outcomes[2].killed_by, SIGKILL);
  EXPECT_FALSE(outcomes[2].overdue);
  EXPECT_TRUE(outcomes[3].overdue);
}

TEST(RankProcessesTest, TheFolderGoes) {
  std::string path;
  {
    TemporaryFolder folder;
    path = folder.path();
    EXPECT_EQ(access(path.c_str(), W_OK), 0);
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace tidetape::collectives
