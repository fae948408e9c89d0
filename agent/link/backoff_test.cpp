#include "agent/link/backoff.h"

#include <gtest/gtest.h>

#include <set>

namespace tidetape::link {
namespace {

using std::chrono::milliseconds;

TEST(Backoff, GrowsToItsCeilingAndStartsAnew) {
  Backoff backoff({milliseconds(200), milliseconds(1600), 2.0, /*jitter=*/0.0}, 1);
  EXPECT_EQ(backoff.Next(), milliseconds(200));
  EXPECT_EQ(backoff.Next(), milliseconds(400));
  EXPECT_EQ(backoff.Next(), milliseconds(800));
  EXPECT_EQ(backoff.Next(), milliseconds(1600));
  EXPECT_EQ(backoff.Next(), milliseconds(1600));
  backoff.Reset();
  EXPECT_EQ(backoff.Next(), milliseconds(200));
}

TEST(Backoff, JitterSpreadsRanksWithinItsBounds) {
  std::set<Backoff::Duration> seen;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Backoff backoff({milliseconds(1000), milliseconds(1000), 2.0, /*jitter=*/0.2}, seed);
    const Backoff::Duration pause = backoff.Next();
    EXPECT_GE(pause, milliseconds(800));
    EXPECT_LE(pause, milliseconds(1200));
    seen.insert(pause);
  }
  EXPECT_GT(seen.size(), 90u);
}

}  // namespace
}  // namespace tidetape::link
