#include "server/service/rate_limit.h"

#include <gtest/gtest.h>

namespace tidetape::server {
namespace {

TEST(RateLimit, LetsABurstThroughAndThenTheRate) {
  RateLimit limit(10, 3);
  absl::Time now = absl::FromUnixSeconds(1000);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(limit.Take(now), absl::ZeroDuration());
  EXPECT_EQ(limit.Take(now), absl::Milliseconds(100));
  now += absl::Milliseconds(100);
  EXPECT_EQ(limit.Take(now), absl::Milliseconds(100));
  now += absl::Hours(1);  // idle: one burst, not an hour's worth
  for (int i = 0; i < 3; ++i) EXPECT_EQ(limit.Take(now), absl::ZeroDuration());
  EXPECT_GT(limit.Take(now), absl::ZeroDuration());
}

TEST(RateLimit, AClockThatJumpsNeitherBlocksNorFloods) {
  RateLimit limit(10, 3);
  absl::Time now = absl::FromUnixSeconds(1000);
  for (int i = 0; i < 4; ++i) limit.Take(now);
  now -= absl::Hours(5);
  EXPECT_LE(limit.Take(now), absl::Milliseconds(200));
  now += absl::Milliseconds(200);
  EXPECT_LE(limit.Take(now), absl::Milliseconds(100));
}

}  // namespace
}  // namespace tidetape::server
