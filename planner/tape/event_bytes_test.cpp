#include "planner/tape/event_bytes.h"

#include <gtest/gtest.h>

#include <vector>

namespace tidetape::planner {
namespace {

// Storages of so many bytes, the first one an input; ops are added by the test.
BlockTape TapeOf(const std::vector<int64_t>& bytes) {
  BlockTape tape;
  for (int64_t b : bytes) tape.storages.push_back({.bytes = b});
  tape.storages[0].kind = StorageKind::kBlockInput;
  return tape;
}

void AddOp(BlockTape& tape, std::vector<int32_t> reads, std::vector<int32_t> writes) {
  tape.ops.push_back({.name = "op", .cost_seconds = 1, .reads = std::move(reads), .writes = std::move(writes)});
}

// By storage: bytes that saving it has at the event.
std::vector<int64_t> SavedBytesAt(const BlockTape& tape, size_t event) {
  const BlockTape at = TapeAtEvent(TapeIndex(tape), event);
  std::vector<int64_t> bytes;
  for (const Storage& s : at.storages) bytes.push_back(s.held_anyway ? 0 : s.bytes);
  bytes[0] = 0;
  return bytes;
}

TEST(EventBytesTest, SavedStoragesCountUntilTheyAreReadOrReleased) {
  BlockTape tape = TapeOf({4, 5, 7});
  AddOp(tape, {0}, {1});
  AddOp(tape, {0}, {2});
  tape.consumed = {2, 1};
  tape.backward = {{.reads = {}}, {.reads = {2}, .releases = {2}}, {.reads = {1}}};
  EXPECT_EQ(SavedBytesAt(tape, 0), (std::vector<int64_t>{0, 5, 7}));
  EXPECT_EQ(SavedBytesAt(tape, 1), (std::vector<int64_t>{0, 5, 0}));  // 2 is there whether saved or made
  EXPECT_EQ(SavedBytesAt(tape, 2), (std::vector<int64_t>{0, 0, 0}));
  EXPECT_EQ(HeldAt(TapeIndex(tape), 1), (Flags{false, false, true}));
}

// 1 and 2 are read to make 3, which may be there in their place, but only once.
TEST(EventBytesTest, OneStandInTakesThePlaceOfOneStorage) {
  BlockTape tape = TapeOf({4, 9, 10, 8});
  AddOp(tape, {0}, {1});
  AddOp(tape, {0}, {2});
  AddOp(tape, {1, 2}, {3});
  tape.consumed = {3};
  tape.backward = {{.reads = {}}, {.reads = {3}}};
  EXPECT_EQ(SavedBytesAt(tape, 0), (std::vector<int64_t>{0, 0, 8, 8}));
  EXPECT_EQ(SavedBytesAt(tape, 1), (std::vector<int64_t>{0, 0, 0, 0}));
}

// Between 1 and 3 there may be 2 alone for a while.
TEST(EventBytesTest, AStandInCountsForTheLeastOnTheWay) {
  BlockTape tape = TapeOf({4, 10, 3, 8});
  AddOp(tape, {0}, {1});
  AddOp(tape, {1}, {2});
  AddOp(tape, {2}, {3});
  tape.consumed = {3};
  tape.backward = {{.reads = {}}, {.reads = {3}}};
  EXPECT_EQ(SavedBytesAt(tape, 0), (std::vector<int64_t>{0, 3, 0, 8}));  // 1 and 2 share it
}

// The op may be replayed for 3 while 2 is saved; then 1 is let go and 2 counts already.
TEST(EventBytesTest, OneOfSeveralOutputsIsNoStandIn) {
  BlockTape tape = TapeOf({4, 10, 8, 2});
  AddOp(tape, {0}, {1});
  AddOp(tape, {1}, {2, 3});
  tape.consumed = {3, 2};
  tape.backward = {{.reads = {}}, {.reads = {3}}, {.reads = {2}}};
  EXPECT_EQ(SavedBytesAt(tape, 0), (std::vector<int64_t>{0, 0, 8, 2}));
}

// The other reader may be the last one.
TEST(EventBytesTest, AStorageWithSeveralReadersHasNoStandIn) {
  BlockTape tape = TapeOf({4, 10, 8, 2});
  AddOp(tape, {0}, {1});
  AddOp(tape, {1}, {2});
  AddOp(tape, {1}, {3});
  tape.consumed = {3, 2};
  tape.backward = {{.reads = {}}, {.reads = {3}}, {.reads = {2}}};
  EXPECT_EQ(SavedBytesAt(tape, 0), (std::vector<int64_t>{0, 0, 8, 2}));
}

TEST(EventBytesTest, DecisionsHoldWhatTheyNeed) {
  BlockTape tape = TapeOf({4, 5, 7, 1});
  for (int32_t s = 1; s < 4; ++s) AddOp(tape, {s - 1}, {s});
  tape.consumed = {3, 2, 1};
  tape.backward = {{.reads = {3}, .releases = {3}}, {.reads = {2}, .releases = {2}}, {.reads = {1}}};
  const TapeIndex index(tape);
  EXPECT_EQ(BytesUnderEveryPlan(index)[0].held, 1);
  EXPECT_EQ(BytesHeldAt(index, 0, 3, true), 1);
  EXPECT_EQ(BytesHeldAt(index, 0, 3, false), 1 + 7);
  EXPECT_EQ(BytesHeldAt(index, 0, 1, true), 1 + 5);
  EXPECT_EQ(BytesHeldAt(index, 1, 2, false), 7 + 5);
}

}  // namespace
}  // namespace tidetape::planner
