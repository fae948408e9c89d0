#include "planner/step/region_pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "planner/tape/plan_space.h"
#include "planner/testing/oracle.h"
#include "planner/testing/random_tape.h"

namespace tidetape::planner {
namespace {

constexpr double kTolerance = 1e-9;

std::vector<Choice> PiecesOf(TapePlans& plans, const BlockInstance& block, const PieceNeeds& needs) {
  const OwnPeakRange range = plans.RangeOfOwnPeaks(block);
  std::vector<Choice> pieces;
  AppendPieces({plans.bound(), range, plans.AtEvent(range.least_event).bound()}, needs, 7, pieces);
  return pieces;
}

// Every plan of every region needs at least what one of the region's pieces says, however coarse they are and whatever is asked
// for.
TEST(RegionPiecesTest, NoPlanBeatsAllPieces) {
  int checked = 0, split_by_peak = 0, left_out = 0;
  for (int seed = 0; checked < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const PlanningProblem problem = RandomProblem(random, 1, 3 + seed % 7);
    const BlockInstance& block = problem.blocks[0];
    if (!block.options.empty()) continue;
    const BlockTape& tape = problem.tapes[block.tape];
    const auto root = TapePlans::Create(tape);
    if (!root.ok()) continue;
    ++checked;
    PlanSpace space(tape, **root);
    for (int i = seed % 5; i > 0; --i) space.SplitOnLargest(space.open()[random() % space.open().size()]);
    const std::vector<OraclePlan> plans = AllPlans(tape);
    const double full = (*root)->bound().back().seconds;
    const double price = static_cast<double>(random() % 100) * full / 1e4;
    const PieceNeeds all{.excess = [&](int64_t bytes, double seconds) { return seconds + price * static_cast<double>(bytes); },
                         .most_excess = std::numeric_limits<double>::infinity(),
                         .most_own_peak = std::numeric_limits<int64_t>::max(),
                         .grain_seconds = full / static_cast<double>(1 + random() % 40) + 1e-12};
    PieceNeeds some = all;
    some.most_excess = all.excess((*root)->bound().front().bytes, full * static_cast<double>(random() % 100) / 100);
    some.most_own_peak = (*root)->RangeOfOwnPeaks(block).least_bytes + static_cast<int64_t>(random() % 40);
    for (int32_t region : space.open()) {
      const std::vector<Choice> pieces = PiecesOf(space.plans(region), block, all);
      const std::vector<Choice> few = PiecesOf(space.plans(region), block, some);
      split_by_peak += std::adjacent_find(pieces.begin(), pieces.end(), [](const Choice& x, const Choice& y) {
                         return x.saved_bytes == y.saved_bytes && x.own_peak_bytes < y.own_peak_bytes;
                       }) != pieces.end();
      for (const OraclePlan& plan : plans) {
        if (!IsInRegion(plan, space.plans(region).index().tape(), tape)) continue;
        const int64_t own_peak = OracleOwnPeak(tape, block, plan);
        const auto promises = [&](const Choice& piece) {
          return piece.saved_bytes <= plan.bytes && piece.own_peak_bytes <= own_peak && piece.seconds <= plan.seconds + kTolerance;
        };
        EXPECT_TRUE(std::any_of(pieces.begin(), pieces.end(), promises));
        if (own_peak > some.most_own_peak || all.excess(plan.bytes, plan.seconds) > some.most_excess) {
          ++left_out;
        } else {
          EXPECT_TRUE(std::any_of(few.begin(), few.end(), promises));
        }
      }
    }
    if (HasFailure()) break;
  }
  EXPECT_GT(split_by_peak, 30);
  EXPECT_GT(left_out, 100);
}

// A storage that backward does not read takes its place as well while it is saved: the bytes that its reader makes, if not its own.
TEST(RegionPiecesTest, WhatIsSavedForAReaderAloneCountsAtThePeak) {
  // 0 (input) -> 1 (10 bytes) -> 2 (8 bytes, consumed last); 3 (1 byte, made from the input) is read where the peak is.
  BlockTape tape;
  for (int64_t bytes : {4, 10, 8, 1}) tape.storages.push_back({.bytes = bytes});
  tape.storages[0].kind = StorageKind::kBlockInput;
  tape.ops = {{.name = "dear", .cost_seconds = 5, .reads = {0}, .writes = {1}},
              {.name = "cheap", .cost_seconds = 1, .reads = {1}, .writes = {2}},
              {.name = "other", .cost_seconds = 1, .reads = {0}, .writes = {3}}};
  tape.consumed = {3, 2};
  tape.backward = {{.reads = {3}, .releases = {3}, .gradient_live_bytes = 100}, {.reads = {2}, .releases = {2}}};
  const BlockInstance block;
  const auto plans = TapePlans::Create(tape);
  const PieceNeeds needs{.excess = [](int64_t, double seconds) { return seconds; },
                         .most_excess = 100,
                         .most_own_peak = 100 + 1 + 7,  // one byte less than any plan has that saves 1 or 2
                         .grain_seconds = 0.001};
  double least = std::numeric_limits<double>::infinity();
  for (const Choice& piece : PiecesOf(**plans, block, needs)) least = std::min(least, piece.seconds);
  EXPECT_GT(least, 0.3);  // 6 / 8 by a mixture of saving nothing and saving 2, less half a byte for a piece
  PlanSpace space(tape, **plans);
  ASSERT_TRUE(space.SplitBetweenCorners(0, 0, 7));
  for (int32_t region : space.open()) {
    for (const Choice& piece : PiecesOf(space.plans(region), block, needs))
      EXPECT_GT(piece.seconds, 1.2);  // likewise with 1: 6 - 5 * 7 / 8
  }
}

}  // namespace
}  // namespace tidetape::planner
