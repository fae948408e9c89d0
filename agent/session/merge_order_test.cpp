#include "agent/session/merge_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tidetape::agent {
namespace {

using Keys = std::vector<uint64_t>;

// The merged sequence itself.
Keys Merge(const Keys& base, const Keys& added) {
  const std::optional<MergedOrder> order = MergeOrder(base, added);
  if (!order) return {};
  Keys merged(order->size, 0);
  for (size_t i = 0; i < base.size(); ++i) merged[order->base_at[i]] = base[i];
  for (size_t i = 0; i < added.size(); ++i) merged[order->added_at[i]] = added[i];
  return merged;
}

TEST(MergeOrderTest, EqualSequencesStay) { EXPECT_EQ(Merge({1, 2, 3}, {1, 2, 3}), (Keys{1, 2, 3})); }

TEST(MergeOrderTest, MissingElementsStay) { EXPECT_EQ(Merge({1, 2, 3, 4}, {1, 4}), (Keys{1, 2, 3, 4})); }

TEST(MergeOrderTest, NewElementsComeAfterTheirPredecessor) {
  EXPECT_EQ(Merge({1, 4, 5}, {1, 2, 3, 5}), (Keys{1, 2, 3, 4, 5}));
  EXPECT_EQ(Merge({5}, {1, 2}), (Keys{1, 2, 5}));
  EXPECT_EQ(Merge({}, {1, 2}), (Keys{1, 2}));
}

TEST(MergeOrderTest, AnotherOrderIsRefused) { EXPECT_FALSE(MergeOrder({1, 2, 3}, {2, 1}).has_value()); }

// Whatever parts of one sequence are merged, their order is that of the sequence, and nothing is lost or doubled.
TEST(MergeOrderTest, PartsOfOneSequenceMergeIntoItsOrder) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    Keys merged;
    std::vector<bool> seen(20, false);
    for (int part = 0; part < 5; ++part) {
      Keys added;
      for (uint64_t key = 0; key < 20; ++key) {
        if (random() % 2) added.push_back(key), seen[key] = true;
      }
      const std::optional<MergedOrder> order = MergeOrder(merged, added);
      if (!order) break;  // keys that never met may have been put in either order
      merged = Merge(merged, added);
      EXPECT_EQ(merged.size(), static_cast<size_t>(std::count(seen.begin(), seen.end(), true)));
      size_t at = 0;
      for (const uint64_t key : added) {
        const auto found = std::find(merged.begin() + at, merged.end(), key);
        ASSERT_NE(found, merged.end());
        at = found - merged.begin();
      }
      Keys sorted = merged;
      std::sort(sorted.begin(), sorted.end());
      EXPECT_EQ(std::unique(sorted.begin(), sorted.end()), sorted.end());
    }
  }
}

}  // namespace
}  // namespace tidetape::agent
