#include "collectives/transports/tcp/send_queue.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "collectives/transports/tcp/frame_reader.h"
#include "gtest/gtest.h"

namespace tidetape::collectives {
namespace {

const absl::Time kStart = absl::UnixEpoch();

absl::Span<const std::byte> BytesOf(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

size_t Total(absl::Span<const iovec> parts) {
  size_t bytes = 0;
  for (const iovec& part : parts) bytes += part.iov_len;
  return bytes;
}

// Takes at most `most` bytes, as a socket would.
std::string Take(SendQueue& queue, size_t most, absl::Time now) {
  std::string taken;
  for (const iovec& part : queue.Next(now)) {
    const size_t bytes = std::min(part.iov_len, most - taken.size());
    taken.append(static_cast<const char*>(part.iov_base), bytes);
  }
  queue.Sent(taken.size(), now);
  return taken;
}

// The frames of a stream, as a reader sees them.
class Reading {
 public:
  explicit Reading(size_t arena) : arena(arena), reader_(absl::MakeSpan(this->arena), 100) {}

  absl::Status Read(absl::string_view stream) {
    while (!stream.empty()) {
      size_t bytes = 0;
      for (const iovec& part : reader_.Next()) {
        const size_t n = std::min(part.iov_len, stream.size());
        if (n > 0) std::memcpy(part.iov_base, stream.data(), n);
        stream.remove_prefix(n);
        bytes += n;
      }
      if (absl::Status status = reader_.Received(bytes, [&](const FrameHeader& header) { frames.push_back(header); });
          !status.ok()) {
        return status;
      }
    }
    return absl::OkStatus();
  }

  std::vector<std::byte> arena;
  std::vector<FrameHeader> frames;

 private:
  FrameReader reader_;
};

TEST(SendQueueTest, PutsAreCutIntoChunksAndTheLastOneCarriesTheSignal) {
  SendQueue queue(10, {.chunk_bytes = 4});
  const std::string source = "0123456789";
  EXPECT_EQ(queue.Push(BytesOf(source), 100, 7), 1);
  Reading reading(1000);
  ASSERT_TRUE(reading.Read(Take(queue, 10'000, kStart)).ok());
  ASSERT_EQ(reading.frames.size(), 3);
  EXPECT_EQ(reading.frames[0].signal, -1);
  EXPECT_EQ(reading.frames[1].offset, 104);
  EXPECT_EQ(reading.frames[2].signal, 7);
  EXPECT_EQ(reading.frames[2].bytes, 2);
  EXPECT_EQ(std::memcmp(reading.arena.data() + 100, source.data(), source.size()), 0);
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.taken(), 1);
}

TEST(SendQueueTest, AnySplitOfTheStreamGivesTheSamePuts) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    SendQueue queue(100, {.chunk_bytes = 1 + random() % 3000});
    Reading reading(60'000);
    std::vector<std::byte> oracle(reading.arena.size());
    std::vector<std::string> sources(20);
    for (std::string& source : sources) {
      source.resize(random() % 3 == 0 ? random() % 20 : random() % 20'000);
      for (char& c : source) c = static_cast<char>(random());
      const uint64_t offset = random() % (oracle.size() - source.size());
      std::memcpy(oracle.data() + offset, source.data(), source.size());
      queue.Push(BytesOf(source), offset, static_cast<int>(random() % 100));
    }
    while (!queue.empty()) ASSERT_TRUE(reading.Read(Take(queue, 1 + random() % 30'000, kStart)).ok());
    EXPECT_EQ(queue.taken(), 20);
    EXPECT_EQ(reading.arena, oracle);
    int signals = 0;
    for (const FrameHeader& header : reading.frames) signals += header.signal >= 0 ? 1 : 0;
    EXPECT_EQ(signals, 20);
  }
}

TEST(SendQueueTest, APutCountsAsTakenOnlyWithItsLastByte) {
  SendQueue queue(10, {.chunk_bytes = 4});
  const std::string source = "0123456789";
  queue.Push(BytesOf(source), 0, 0);
  Take(queue, 3 * sizeof(FrameHeader) + 9, kStart);
  EXPECT_EQ(queue.taken(), 0);
  EXPECT_EQ(Take(queue, 100, kStart), "9");
  EXPECT_EQ(queue.taken(), 1);
}

TEST(SendQueueTest, IsBounded) {
  SendQueue queue(2, {});
  queue.Push({}, 0, 0);
  EXPECT_FALSE(queue.full());
  queue.Push({}, 0, 0);
  EXPECT_TRUE(queue.full());
  Take(queue, 1000, kStart);
  EXPECT_FALSE(queue.full());
}

TEST(SendQueueTest, NoMoreChunksAreInFlightThanPacingAllows) {
  SendQueue queue(10, {.chunk_bytes = 10, .chunks_in_flight = 2});
  const std::string source(35, 'x');
  queue.Push(BytesOf(source), 0, 0);
  queue.Push({}, 0, 1);
  const size_t chunk = sizeof(FrameHeader) + 10;
  EXPECT_EQ(Take(queue, 1000, kStart).size(), 2 * chunk);
  EXPECT_TRUE(queue.Next(kStart).empty());
  EXPECT_EQ(queue.NextTime(), absl::InfiniteFuture());
  queue.Acked(1);
  EXPECT_EQ(Take(queue, 1000, kStart).size(), chunk);
  queue.Acked(2);
  // The last five bytes, and the signal that needs no room.
  Reading reading(1000);
  ASSERT_TRUE(reading.Read(Take(queue, 1000, kStart)).ok());
  ASSERT_EQ(reading.frames.size(), 2);
  EXPECT_EQ(reading.frames[0].type, FrameType::kCountedPut);
  EXPECT_EQ(reading.frames[1].type, FrameType::kPut);
  EXPECT_TRUE(queue.empty());
}

TEST(SendQueueTest, ChunksKeepTheirGap) {
  SendQueue queue(10, {.chunk_bytes = 10, .gap = absl::Milliseconds(5)});
  const std::string source(30, 'x');
  queue.Push(BytesOf(source), 0, 0);
  const size_t chunk = sizeof(FrameHeader) + 10;
  EXPECT_EQ(Take(queue, chunk - 1, kStart).size(), chunk - 1);
  // The gap counts from the chunk's end.
  EXPECT_EQ(Take(queue, 1000, kStart + absl::Milliseconds(3)).size(), 1);
  EXPECT_TRUE(queue.Next(kStart + absl::Milliseconds(7)).empty());
  EXPECT_EQ(queue.NextTime(), kStart + absl::Milliseconds(8));
  EXPECT_EQ(Take(queue, 1000, kStart + absl::Milliseconds(8)).size(), chunk);
  EXPECT_EQ(queue.NextTime(), kStart + absl::Milliseconds(13));
}

TEST(SendQueueTest, ControlFramesDoNotWaitForPacing) {
  SendQueue queue(10, {.chunk_bytes = 10, .chunks_in_flight = 1});
  const std::string source(30, 'x');
  queue.Push(BytesOf(source), 0, 0);
  Take(queue, 1000, kStart);
  queue.AddAck();
  queue.AddAck();
  EXPECT_EQ(queue.NextTime(), absl::InfinitePast());
  Reading reading(100);
  ASSERT_TRUE(reading.Read(Take(queue, 1000, kStart)).ok());
  ASSERT_EQ(reading.frames.size(), 1);
  EXPECT_EQ(reading.frames[0].type, FrameType::kAck);
  EXPECT_EQ(reading.frames[0].bytes, 2);
}

TEST(SendQueueTest, AGoodbyeComesAfterAllPuts) {
  SendQueue queue(10, {.chunk_bytes = 10});
  const std::string source(30, 'x');
  queue.Push(BytesOf(source), 0, 0);
  queue.PushGoodbye(3);
  Reading reading(100);
  ASSERT_TRUE(reading.Read(Take(queue, 1000, kStart)).ok());
  ASSERT_EQ(reading.frames.size(), 4);
  EXPECT_EQ(reading.frames[3].type, FrameType::kGoodbye);
  EXPECT_EQ(reading.frames[3].signal, 3);
}

TEST(SendQueueTest, DroppingFinishesTheFrameInHandAndNoMore) {
  for (size_t taken : {size_t{0}, size_t{1}, sizeof(FrameHeader) + 3, 2 * sizeof(FrameHeader) + 11}) {
    SendQueue queue(10, {.chunk_bytes = 10});
    const std::string source(30, 'x');
    queue.Push(BytesOf(source), 0, 0);
    queue.Push(BytesOf(source), 0, 0);
    std::string stream = Take(queue, taken, kStart);
    queue.Drop();
    EXPECT_EQ(queue.taken(), taken == 0 ? 2 : 0);
    queue.PushGoodbyeAck();
    stream += Take(queue, 1000, kStart);
    EXPECT_TRUE(queue.empty());
    EXPECT_EQ(queue.taken(), 2);
    Reading reading(100);
    ASSERT_TRUE(reading.Read(stream).ok());
    EXPECT_EQ(reading.frames.back().type, FrameType::kGoodbyeAck);
    EXPECT_EQ(reading.frames.size(), taken == 0 ? 1 : taken < 2 * sizeof(FrameHeader) ? 2 : 3);
    for (const FrameHeader& header : reading.frames) EXPECT_EQ(header.signal, -1);
  }
}

TEST(FrameReaderTest, RefusesWhatIsNoFrameOrReachesOutside) {
  const std::vector<FrameHeader> bad = {
      {.magic = 1},
      {.type = static_cast<FrameType>(0)},
      {.type = static_cast<FrameType>(6)},
      {.signal = 0, .offset = 90, .bytes = 11},
      {.signal = 0, .offset = ~uint64_t{0}, .bytes = 1},
      {.signal = 0, .offset = 1, .bytes = ~uint64_t{0}},
      {.signal = 100, .offset = 0, .bytes = 0},
  };
  for (const FrameHeader& header : bad) {
    Reading reading(100);
    EXPECT_EQ(reading.Read({reinterpret_cast<const char*>(&header), sizeof(header)}).code(), absl::StatusCode::kDataLoss);
    EXPECT_TRUE(reading.frames.empty());
  }
}

TEST(SendQueueTest, TotalOfPartsIsWhatIsLeft) {
  SendQueue queue(10, {.chunk_bytes = 10});
  const std::string source(10, 'x');
  queue.Push(BytesOf(source), 0, 0);
  EXPECT_EQ(Total(queue.Next(kStart)), sizeof(FrameHeader) + 10);
  queue.Sent(5, kStart);
  EXPECT_EQ(Total(queue.Next(kStart)), sizeof(FrameHeader) + 5);
}

}  // namespace
}  // namespace tidetape::collectives
