#include "server/messages/tape_assembler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tidetape::server {
namespace {

using testing::HasSubstr;

const Sender kSender = {"run-7", 3};

ByteBudget budget(1 << 20);

v1::BlockTape MakeTape(uint64_t hash, int storages) {
  v1::BlockTape tape;
  tape.set_structure_hash(hash);
  for (int i = 0; i < storages; ++i) tape.add_storages()->set_bytes(i);
  return tape;
}

std::vector<v1::TapeChunk> Cut(const v1::BlockTape& tape, int count) {
  const std::string data = tape.SerializeAsString();
  const size_t size = (data.size() + count - 1) / count;
  std::vector<v1::TapeChunk> chunks(count);
  for (int i = 0; i < count; ++i) {
    chunks[i].set_structure_hash(tape.structure_hash());
    chunks[i].set_index(i);
    chunks[i].set_count(count);
    chunks[i].set_data(data.substr(i * size, size));
  }
  return chunks;
}

TEST(TapeAssembler, PutsAlternatingTapesTogether) {
  const v1::BlockTape first = MakeTape(1, 50), second = MakeTape(2, 60);
  const auto a = Cut(first, 3), b = Cut(second, 2);
  TapeAssembler assembler(&budget);
  EXPECT_FALSE(assembler.Add(kSender, a[0]).value().has_value());
  EXPECT_FALSE(assembler.Add(kSender, b[0]).value().has_value());
  EXPECT_FALSE(assembler.Add(kSender, a[1]).value().has_value());
  EXPECT_EQ(assembler.Add(kSender, b[1]).value()->SerializeAsString(), second.SerializeAsString());
  EXPECT_EQ(assembler.Add(kSender, a[2]).value()->SerializeAsString(), first.SerializeAsString());
}

TEST(TapeAssembler, TheSameTapeMayComeAgain) {
  TapeAssembler assembler(&budget, {.chunk_bytes = 100, .tape_bytes = 100});
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(assembler.Add(kSender, Cut(MakeTape(1, 10), 1)[0]).value().has_value());
}

TEST(TapeAssembler, RefusesChunksOutOfOrder) {
  TapeAssembler assembler(&budget);
  const auto status = assembler.Add(kSender, Cut(MakeTape(1, 50), 3)[1]).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("job 'run-7', rank 3, tape 0000000000000001, chunk 1 of 3"));
}

TEST(TapeAssembler, RefusesAChangedCount) {
  TapeAssembler assembler(&budget);
  auto chunks = Cut(MakeTape(1, 50), 3);
  ASSERT_TRUE(assembler.Add(kSender, chunks[0]).ok());
  chunks[1].set_count(4);
  EXPECT_TRUE(absl::IsInvalidArgument(assembler.Add(kSender, chunks[1]).status()));
}

TEST(TapeAssembler, RefusesEmptyAndNegativeCounts) {
  for (const int count : {0, -1}) {
    auto chunk = Cut(MakeTape(1, 5), 1)[0];
    chunk.set_count(count);
    EXPECT_TRUE(absl::IsInvalidArgument(TapeAssembler(&budget).Add(kSender, chunk).status()));
  }
  auto chunk = Cut(MakeTape(1, 5), 1)[0];
  chunk.clear_data();
  EXPECT_TRUE(absl::IsInvalidArgument(TapeAssembler(&budget).Add(kSender, chunk).status()));
}

TEST(TapeAssembler, RefusesChunksAndTapesThatAreTooLarge) {
  TapeAssembler chunk_bound(&budget, {.chunk_bytes = 20, .tape_bytes = 1000});
  EXPECT_TRUE(absl::IsInvalidArgument(chunk_bound.Add(kSender, Cut(MakeTape(1, 50), 1)[0]).status()));

  // The bound is on all unfinished tapes together.
  TapeAssembler tape_bound(&budget, {.chunk_bytes = 1000, .tape_bytes = 150});
  ASSERT_TRUE(tape_bound.Add(kSender, Cut(MakeTape(1, 50), 2)[0]).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(tape_bound.Add(kSender, Cut(MakeTape(2, 50), 2)[0]).status()));
}

TEST(TapeAssembler, RefusesWhatIsNoTapeOrAnotherTape) {
  auto chunk = Cut(MakeTape(1, 5), 1)[0];
  chunk.set_structure_hash(2);
  EXPECT_TRUE(absl::IsInvalidArgument(TapeAssembler(&budget).Add(kSender, chunk).status()));
  chunk.set_data("\xff\xff\xff");
  EXPECT_TRUE(absl::IsInvalidArgument(TapeAssembler(&budget).Add(kSender, chunk).status()));
}

TEST(TapeAssembler, AllStreamsShareABudget) {
  const v1::BlockTape tape = MakeTape(1, 50);
  const auto chunks = Cut(tape, 2);
  const auto size = static_cast<int64_t>(tape.ByteSizeLong());
  ByteBudget shared(size + 10);
  {
    TapeAssembler first(&shared), second(&shared);
    ASSERT_TRUE(first.Add(kSender, chunks[0]).ok());
    ASSERT_TRUE(first.Add(kSender, chunks[1]).value().has_value());
    EXPECT_TRUE(absl::IsUnavailable(second.Add(kSender, chunks[0]).status()));  // the first one's tape is still in use
    first.Done();
    EXPECT_EQ(shared.left(), size + 10);
    TapeAssembler third(&shared);
    ASSERT_TRUE(third.Add(kSender, chunks[0]).ok());
    EXPECT_LT(shared.left(), size);
  }
  EXPECT_EQ(shared.left(), size + 10);  // streams that ended hold nothing
}

}  // namespace
}  // namespace tidetape::server
