// The queue against threads that wake it at every moment of its life.
#include "agent/link/wakeable_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace tidetape::link {
namespace {

int tag_of_wakes;

grpc::CompletionQueue::NextStatus Next(WakeableQueue& queue, std::chrono::milliseconds timeout) {
  void* tag = nullptr;
  bool ok = false;
  const auto status = queue.queue().AsyncNext(&tag, &ok, std::chrono::system_clock::now() + timeout);
  if (status == grpc::CompletionQueue::GOT_EVENT) {
    EXPECT_EQ(tag, &tag_of_wakes);
    EXPECT_TRUE(ok);
  }
  return status;
}

TEST(WakeableQueueTest, OneWakeUpServesAllUntilItIsTaken) {
  WakeableQueue queue(&tag_of_wakes);
  for (int i = 0; i < 3; ++i) queue.Wake();
  EXPECT_EQ(Next(queue, std::chrono::seconds(10)), grpc::CompletionQueue::GOT_EVENT);
  queue.Wake();  // not taken yet
  EXPECT_EQ(Next(queue, std::chrono::milliseconds(20)), grpc::CompletionQueue::TIMEOUT);
  queue.WakeTaken();
  queue.Wake();
  EXPECT_EQ(Next(queue, std::chrono::seconds(10)), grpc::CompletionQueue::GOT_EVENT);
  queue.ShutDown();
}

TEST(WakeableQueueTest, AWakeUpAfterTheEndDoesNothing) {
  WakeableQueue queue(&tag_of_wakes);
  queue.ShutDown();
  queue.Wake();
}

TEST(WakeableQueueTest, AWakeUpOnItsWayDoesNotHinderTheEnd) {
  WakeableQueue queue(&tag_of_wakes);
  queue.Wake();
  queue.ShutDown();
}

TEST(WakeableQueueTest, ThreadsMayWakeItWhileItEnds) {
  for (int round = 0; round < 300; ++round) {
    WakeableQueue queue(&tag_of_wakes);
    std::atomic<int> ready = 0;
    std::atomic<bool> stop = false;
    const auto wake = [&] {
      ++ready;
      while (!stop) queue.Wake();
    };
    std::thread first(wake);
    std::thread second(wake);
    while (ready < 2) std::this_thread::yield();
    for (int i = 0; i < round % 5; ++i) {
      ASSERT_EQ(Next(queue, std::chrono::seconds(10)), grpc::CompletionQueue::GOT_EVENT);
      queue.WakeTaken();
    }
    queue.ShutDown();
    stop = true;
    first.join();
    second.join();
  }
}

}  // namespace
}  // namespace tidetape::link
