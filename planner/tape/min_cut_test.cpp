#include "planner/tape/min_cut.h"

#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tidetape::planner {
namespace {

// Value of the set of nodes whose bits are set; infinite where it breaks an implication.
double Value(const std::vector<double>& surplus, const std::vector<CutArc>& arcs, uint32_t set) {
  double value = 0;
  for (size_t v = 0; v < surplus.size(); ++v) {
    const bool inside = set >> v & 1;
    if (surplus[v] > 0 && !inside) value += surplus[v];
    if (surplus[v] < 0 && inside) value -= surplus[v];
  }
  for (const CutArc& arc : arcs) {
    if ((set >> arc.from & 1) && !(set >> arc.to & 1)) value += arc.capacity;
  }
  return value;
}

TEST(MinCutTest, FindsTheSmallestOfTheBestSets) {
  MinCut min_cut;  // one for all, as it keeps its memory
  for (int seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const int nodes = 1 + random() % 10;
    std::vector<double> surplus;
    std::vector<CutArc> arcs;
    for (int v = 0; v < nodes; ++v) surplus.push_back(static_cast<int>(random() % 21) - 10);
    for (int a = random() % 25; a > 0; --a) {
      const int32_t from = random() % nodes, to = random() % nodes;
      if (from != to) arcs.push_back({from, to, random() % 5 == 0 ? kInfiniteCapacity : 1.0 * (random() % 8)});
    }
    double best = kInfiniteCapacity;
    for (uint32_t set = 0; set < 1u << nodes; ++set) best = std::min(best, Value(surplus, arcs, set));
    uint32_t smallest = ~0u;  // best sets are closed under intersection
    for (uint32_t set = 0; set < 1u << nodes; ++set) {
      if (Value(surplus, arcs, set) == best) smallest &= set;
    }
    const auto inside = min_cut.Solve(surplus, arcs, 0);
    uint32_t found = 0;
    for (int v = 0; v < nodes; ++v) found |= static_cast<uint32_t>(inside[v]) << v;
    ASSERT_EQ(Value(surplus, arcs, found), best);
    ASSERT_EQ(found, smallest);
  }
}

TEST(MinCutTest, CutsAGraphWithoutNodes) { EXPECT_TRUE(MinCut().Solve({}, {}, 0).empty()); }

// A chain as long as this would overflow the stack of a recursive search.
TEST(MinCutTest, FollowsALongChain) {
  constexpr int kNodes = 300000;
  std::vector<double> surplus(kNodes, 0);
  surplus.front() = 2;
  surplus.back() = -1;
  std::vector<CutArc> arcs;
  for (int v = 0; v + 1 < kNodes; ++v) arcs.push_back({v, v + 1, v == kNodes / 2 ? 0.5 : 3});
  MinCut min_cut;
  const auto inside = min_cut.Solve(surplus, arcs, 0);
  EXPECT_TRUE(inside[kNodes / 2]);
  EXPECT_FALSE(inside[kNodes / 2 + 1]);
}

}  // namespace
}  // namespace tidetape::planner
