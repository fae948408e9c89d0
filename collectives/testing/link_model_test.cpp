#include "collectives/testing/link_model.h"

#include "gtest/gtest.h"

namespace tidetape::collectives {
namespace {

const absl::Time kStart = absl::UnixEpoch();

absl::Time At(int milliseconds) { return kStart + absl::Milliseconds(milliseconds); }

TEST(LinkModelTest, BytesTakeTheirTimeAndTheDelay) {
  LinkModel link({.bytes_per_second = 1e6, .delay = absl::Milliseconds(5), .queue_bytes = 10'000});
  EXPECT_EQ(link.Enter(1000, At(0)), At(6));
  // Behind the first.
  EXPECT_EQ(link.Enter(2000, At(0)), At(8));
  // The link was idle since 3 ms.
  EXPECT_EQ(link.Enter(1000, At(10)), At(16));
}

TEST(LinkModelTest, TheQueueHoldsWhatHasNotDeparted) {
  LinkModel link({.bytes_per_second = 1e6, .queue_bytes = 3000});
  EXPECT_EQ(link.Room(At(0)), 3000);
  link.Enter(1000, At(0));
  link.Enter(2000, At(0));
  EXPECT_EQ(link.Room(At(0)), 0);
  EXPECT_EQ(link.NextDeparture(), At(1));
  EXPECT_EQ(link.Room(At(1)), 1000);
  EXPECT_EQ(link.Room(At(3)), 3000);
  EXPECT_EQ(link.NextDeparture(), absl::InfiniteFuture());
}

TEST(LinkModelTest, AnOverrunStallsTheLinkOnceForEachFilling) {
  LinkModel link({.bytes_per_second = 1e6, .queue_bytes = 1000, .stall = absl::Milliseconds(50)});
  link.Enter(1000, At(0));
  link.Overrun(At(0));
  link.Overrun(At(1));
  EXPECT_EQ(link.overruns(), 1);
  // What had entered departs in time, then nothing for 50 ms.
  EXPECT_EQ(link.Room(At(2)), 0);
  EXPECT_EQ(link.Room(At(50)), 0);
  EXPECT_EQ(link.Room(At(51)), 1000);
  EXPECT_EQ(link.Enter(1000, At(51)), At(52));
  link.Overrun(At(51));
  EXPECT_EQ(link.overruns(), 2);
}

TEST(LinkModelTest, WithoutAStallAnOverrunCostsNothing) {
  LinkModel link({.bytes_per_second = 1e6, .queue_bytes = 1000});
  link.Enter(1000, At(0));
  link.Overrun(At(0));
  EXPECT_EQ(link.overruns(), 0);
  EXPECT_EQ(link.Room(At(1)), 1000);
}

}  // namespace
}  // namespace tidetape::collectives
