#include "collectives/transports/common/signal_board.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidetape::collectives {
namespace {

using ::testing::HasSubstr;

constexpr auto kAlive = [] { return absl::OkStatus(); };

class SignalBoardTest : public ::testing::Test {
 protected:
  static constexpr int kSenders = 3;
  static constexpr int kSignals = 4;

  absl::Status Wait(int sender, int signal, uint64_t count, absl::Duration limit) {
    return board_.Wait(sender, signal, count, absl::Now() + limit, absl::Microseconds(5), kAlive);
  }

  alignas(64) std::byte memory_[64 * kSenders * kSignals] = {};
  SignalBoard board_{absl::MakeSpan(memory_), kSenders, kSignals, false};
};

TEST_F(SignalBoardTest, NeedsALineForEachCounter) { EXPECT_EQ(SignalBoard::BytesFor(3, 4), sizeof(memory_)); }

TEST_F(SignalBoardTest, CountsEachSenderAndSignalApart) {
  board_.Raise(1, 2);
  board_.Raise(1, 2);
  board_.Raise(2, 1);
  EXPECT_EQ(board_.Available(1, 2), 2);
  EXPECT_EQ(board_.Available(2, 1), 1);
  EXPECT_EQ(board_.Available(2, 2), 0);
  EXPECT_TRUE(Wait(1, 2, 1, absl::ZeroDuration()).ok());
  EXPECT_EQ(board_.Available(1, 2), 1);
}

TEST_F(SignalBoardTest, ADeadlineConsumesNothingAndSaysHowManyCame) {
  board_.Raise(0, 0);
  const absl::Status status = Wait(0, 0, 3, absl::Milliseconds(20));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("1 of 3 signals"));
  EXPECT_EQ(board_.Available(0, 0), 1);
}

TEST_F(SignalBoardTest, WhatArrivedBeforeAFailureCounts) {
  board_.Raise(0, 0);
  const auto lost = [] { return absl::UnavailableError("rank 0 died"); };
  EXPECT_TRUE(board_.Wait(0, 0, 1, absl::InfiniteFuture(), absl::ZeroDuration(), lost).ok());
  EXPECT_EQ(board_.Wait(0, 0, 1, absl::InfiniteFuture(), absl::ZeroDuration(), lost).code(), absl::StatusCode::kUnavailable);
}

TEST_F(SignalBoardTest, RingMakesSleepersAskForFailure) {
  std::atomic<bool> lost = false;
  std::thread reporter([&] {
    absl::SleepFor(absl::Milliseconds(30));
    lost = true;
    board_.Ring();
  });
  const absl::Status status = board_.Wait(0, 0, 1, absl::InfiniteFuture(), absl::ZeroDuration(),
                                          [&] { return lost ? absl::UnavailableError("lost") : absl::OkStatus(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  reporter.join();
}

// A sleeper is woken by the signal that completes what it wants, whatever another sleeper of the counter wants.
TEST_F(SignalBoardTest, SleepersThatWantDifferentCountsAreAllWoken) {
  for (int round = 0; round < 200; ++round) {
    std::vector<std::thread> threads;
    for (uint64_t count : {1, 2, 3}) {
      threads.emplace_back([&, count] {
        ASSERT_TRUE(board_.Wait(1, 1, count, absl::Now() + absl::Seconds(30), absl::ZeroDuration(), kAlive).ok());
      });
    }
    if (round % 2 == 0) absl::SleepFor(absl::Microseconds(200));
    for (int i = 0; i < 6; ++i) board_.Raise(1, 1);
    for (auto& thread : threads) thread.join();
    ASSERT_EQ(board_.Available(1, 1), 0);
  }
}

TEST_F(SignalBoardTest, ASleeperThatWantsLessIsNotLeftAsleepForOneThatWantsMore) {
  for (const bool less_first : {true, false}) {
    const auto wait = [&](uint64_t count) {
      return std::thread([&, count] {
        EXPECT_TRUE(board_.Wait(2, 0, count, absl::Now() + absl::Seconds(30), absl::ZeroDuration(), kAlive).ok());
      });
    };
    std::thread first = wait(less_first ? 1 : 3);
    absl::SleepFor(absl::Milliseconds(50));
    std::thread second = wait(less_first ? 3 : 1);
    absl::SleepFor(absl::Milliseconds(50));
    board_.Raise(2, 0);
    (less_first ? first : second).join();
    for (int i = 0; i < 3; ++i) board_.Raise(2, 0);
    (less_first ? second : first).join();
  }
}

TEST_F(SignalBoardTest, NoSignalIsMissedOrCountedTwiceUnderLoad) {
  constexpr int kRounds = 20'000;
  std::vector<std::thread> threads;
  for (int sender = 0; sender < kSenders; ++sender) {
    threads.emplace_back([&, sender] {
      for (int i = 0; i < kRounds; ++i) board_.Raise(sender, i % 2);
    });
    // Two waiters share what this sender sends on signal 0.
    for (int waiter = 0; waiter < 2; ++waiter) {
      threads.emplace_back([&, sender] {
        for (int i = 0; i < kRounds / 4; ++i) ASSERT_TRUE(Wait(sender, 0, 1, absl::Seconds(60)).ok());
      });
    }
  }
  for (auto& thread : threads) thread.join();
  for (int sender = 0; sender < kSenders; ++sender) {
    EXPECT_EQ(board_.Available(sender, 0), 0);
    EXPECT_EQ(board_.Available(sender, 1), kRounds / 2);
  }
}

}  // namespace
}  // namespace tidetape::collectives
