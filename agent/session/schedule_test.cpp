#include "agent/session/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidetape::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(ScheduleOf, IsEmptyForTheUsualOrder) {
  EXPECT_THAT(ScheduleOf({}, 0), IsEmpty());
  EXPECT_THAT(ScheduleOf({0, ~0}, 1), IsEmpty());
  EXPECT_THAT(ScheduleOf({0, 1, 2, ~2, ~1, ~0}, 3), IsEmpty());
}

TEST(ScheduleOf, SaysWhatRunsWhenAndWhereHeadsAre) {
  EXPECT_THAT(ScheduleOf({0, 1, ~0, ~1}, 2), ElementsAre(1, 2, 0, -1, -2));
  // One forward, one backward.
  EXPECT_THAT(ScheduleOf({0, 1, ~0, 2, ~1, ~2}, 3), ElementsAre(1, 2, 0, -1, 3, 0, -2, -3));
  EXPECT_THAT(ScheduleOf({0, ~0, 1, ~1}, 2), ElementsAre(1, 0, -1, 2, 0, -2));
}

TEST(ScheduleOf, IsEmptyWhereAPositionRunsOtherwiseThanOnce) {
  EXPECT_THAT(ScheduleOf({0, 1, ~1}, 2), IsEmpty());      // one without a backward
  EXPECT_THAT(ScheduleOf({0, ~0, 0, ~0}, 2), IsEmpty());  // gradient accumulation
  EXPECT_THAT(ScheduleOf({~0, 0, 1, ~1}, 2), IsEmpty());  // a graph from before the step
  EXPECT_THAT(ScheduleOf({0, 2, ~2, ~0}, 2), IsEmpty());  // a position that is not among the executions
}

}  // namespace
}  // namespace tidetape::agent
