#include "agent/tape/flat_index.h"

#include <gtest/gtest.h>

#include <random>
#include <unordered_map>

namespace tidetape::agent {
namespace {

TEST(FlatIndexTest, FindsNothingInAnEmptyOne) {
  FlatIndex index;
  EXPECT_EQ(index.Find(0), nullptr);
  EXPECT_EQ(index.Find(17), nullptr);
}

TEST(FlatIndexTest, ANewKeyStartsAtZero) {
  FlatIndex index;
  EXPECT_EQ(index[5], 0);
  EXPECT_EQ(++index[5], 1);
  ASSERT_NE(index.Find(5), nullptr);
  EXPECT_EQ(*index.Find(5), 1);
}

// Against the standard map, over growth, clearing, and keys that share their low or high bits as addresses do.
TEST(FlatIndexTest, AgreesWithTheStandardMap) {
  std::mt19937_64 random(7);
  FlatIndex index;
  for (int round = 0; round < 50; ++round) {
    index.Clear();
    std::unordered_map<uint64_t, int32_t> expected;
    const int shift = static_cast<int>(random() % 40);
    for (int i = 0; i < 2000; ++i) {
      const uint64_t key = (random() % 1500) << shift;
      if (random() % 3 == 0) {
        const auto found = expected.find(key);
        const int32_t* value = index.Find(key);
        ASSERT_EQ(value != nullptr, found != expected.end());
        if (value != nullptr) {
          ASSERT_EQ(*value, found->second);
        }
      } else {
        const auto value = static_cast<int32_t>(random());
        index[key] = value;
        expected[key] = value;
      }
    }
    ASSERT_EQ(index.size(), expected.size());
  }
}

}  // namespace
}  // namespace tidetape::agent
