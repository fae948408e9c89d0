#include "server/job/peak_watch.h"

#include <gtest/gtest.h>

namespace tidetape::server {
namespace {

TEST(PeakWatch, WhatStaysInTheBandIsNoNews) {
  PeakWatch watch;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(watch.Add(0, 1020, 1000), 0);
    EXPECT_EQ(watch.Add(0, 100, 1000), 0);
    EXPECT_EQ(watch.Add(0, 5000, 0), 0);
  }
}

TEST(PeakWatch, TheLeastOfSeveralInARowIsBelieved) {
  PeakWatch watch;
  EXPECT_EQ(watch.Add(0, 1100, 1000), 0);
  EXPECT_EQ(watch.Add(0, 1050, 1000), 0);
  EXPECT_EQ(watch.Add(0, 1200, 1000), 50);
  // And then it takes as many again.
  EXPECT_EQ(watch.Add(0, 1200, 1000), 0);
}

TEST(PeakWatch, AStepThatGoesBackAndForthIsNotBelieved) {
  PeakWatch watch;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(watch.Add(0, i % 3 == 2 ? 1000 : 2000, 1000), 0);
}

TEST(PeakWatch, RanksAreCountedApart) {
  PeakWatch watch;
  EXPECT_EQ(watch.Add(0, 1100, 1000), 0);
  EXPECT_EQ(watch.Add(1, 1100, 1000), 0);
  EXPECT_EQ(watch.Add(0, 1100, 1000), 0);
  EXPECT_EQ(watch.Add(1, 1000, 1000), 0);
  EXPECT_EQ(watch.Add(0, 1100, 1000), 100);
}

TEST(PeakWatch, AnotherPlanBeginsAnew) {
  PeakWatch watch;
  watch.Add(0, 1100, 1000);
  watch.Add(0, 1100, 1000);
  watch.Reset();
  EXPECT_EQ(watch.Add(0, 1100, 1000), 0);
}

}  // namespace
}  // namespace tidetape::server
