#include "planner/testing/enumeration.h"

#include <random>
#include <string>

#include "gtest/gtest.h"
#include "planner/testing/oracle.h"
#include "planner/testing/random_tape.h"

namespace tidetape::planner {
namespace {

// Two ways to say what a plan is, written apart from each other.
TEST(EnumerationTest, EqualsTheOracle) {
  int64_t plans = 0;
  for (int seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const BlockTape tape = RandomTape(random, 2 + seed % 8);
    const Enumeration all(tape);
    const std::vector<OraclePlan> expected = AllPlans(tape);
    ASSERT_EQ(all.plans().size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(all.Saved(all.plans()[i]), expected[i].saved);
      EXPECT_EQ(all.plans()[i].bytes, expected[i].bytes);
      EXPECT_NEAR(all.plans()[i].seconds, expected[i].seconds, 1e-9);
    }
    plans += static_cast<int64_t>(expected.size());
  }
  EXPECT_GT(plans, 10'000);
}

}  // namespace
}  // namespace tidetape::planner
