#include "collectives/testing/slow_link.h"

#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "collectives/testing/transport_contract.h"
#include "collectives/transports/tcp/tcp_transport.h"
#include "gtest/gtest.h"

namespace tidetape::collectives {
namespace {

absl::Time Soon() { return absl::Now() + absl::Seconds(30); }

// Both ends of a connection through a link.
struct Ends {
  std::unique_ptr<SlowLink> link;
  UniqueFd near;
  UniqueFd far;
};

Ends Connect(const LinkOptions& options) {
  auto listener = ListenOn({"127.0.0.1", 0});
  auto link = SlowLink::Start(LocalEndpoint(listener->get()).value(), options);
  auto near = ConnectTo((*link)->endpoint(), Soon());
  EXPECT_TRUE(WaitFor(listener->get(), POLLIN, Soon()));
  return {*std::move(link), *std::move(near), UniqueFd(accept4(listener->get(), nullptr, nullptr, SOCK_NONBLOCK))};
}

std::string ReadToEnd(int socket) {
  std::string all;
  char buffer[1 << 16];
  while (WaitFor(socket, POLLIN, Soon())) {
    const ssize_t n = recv(socket, buffer, sizeof(buffer), 0);
    if (n <= 0) break;
    all.append(buffer, static_cast<size_t>(n));
  }
  return all;
}

void WriteAll(int socket, std::string_view text) {
  while (!text.empty() && WaitFor(socket, POLLOUT, Soon())) {
    const ssize_t n = send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    if (n < 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

std::string Text(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 7 + i / 251);
  return text;
}

TEST(SlowLinkTest, PassesBytesBothWaysAndEndsInOrder) {
  Ends ends = Connect({.bytes_per_second = 50e6, .delay = absl::Milliseconds(2), .queue_bytes = 100'000});
  const std::string there = Text(3'000'001);
  const std::string back = Text(1'000'003);
  std::thread writer([&] {
    WriteAll(ends.near.get(), there);
    shutdown(ends.near.get(), SHUT_WR);
  });
  std::thread answerer([&] {
    WriteAll(ends.far.get(), back);
    shutdown(ends.far.get(), SHUT_WR);
  });
  std::string came_back;
  std::thread reader([&] { came_back = ReadToEnd(ends.near.get()); });
  const bool whole = ReadToEnd(ends.far.get()) == there;
  writer.join();
  answerer.join();
  reader.join();
  EXPECT_TRUE(whole);
  EXPECT_EQ(came_back == back, true);
  EXPECT_EQ(ends.link->bytes(), there.size() + back.size());
  EXPECT_EQ(ends.link->overruns(), 0);
}

TEST(SlowLinkTest, ABurstOverrunsASmallQueueAndAllBytesArriveAllTheSame) {
  Ends ends = Connect({.bytes_per_second = 50e6, .queue_bytes = 50'000, .stall = absl::Milliseconds(5)});
  const std::string text = Text(1'000'000);
  std::thread writer([&] {
    WriteAll(ends.near.get(), text);
    shutdown(ends.near.get(), SHUT_WR);
  });
  const bool whole = ReadToEnd(ends.far.get()) == text;
  writer.join();
  EXPECT_TRUE(whole);
  EXPECT_GE(ends.link->overruns(), 1);
}

TEST(SlowLinkTest, WhatFitsTheQueueDoesNotOverrunIt) {
  Ends ends = Connect({.bytes_per_second = 50e6, .queue_bytes = 50'000, .stall = absl::Milliseconds(5)});
  for (int i = 0; i < 10; ++i) {
    WriteAll(ends.near.get(), Text(40'000));
    for (size_t came = 0; came < 40'000;) {
      char buffer[40'000];
      ASSERT_TRUE(WaitFor(ends.far.get(), POLLIN, Soon()));
      const ssize_t n = recv(ends.far.get(), buffer, sizeof(buffer), 0);
      ASSERT_GT(n, 0);
      came += static_cast<size_t>(n);
    }
  }
  EXPECT_EQ(ends.link->overruns(), 0);
}

// The whole contract over links: the store and the link live as long as the rank's process.
TransportUnderTest Over(const std::string& name, const LinkOptions& link, const Pacing& pacing) {
  return {name,
          [=](const GroupOptions& options, Store& store) -> absl::StatusOr<std::unique_ptr<Transport>> {
            auto* links = new SlowLinkStore(store, link);
            return TcpTransport::Join(*links, options, {.address = "127.0.0.1", .pacing = pacing});
          },
          {},
          {}};
}

INSTANTIATE_TEST_SUITE_P(SlowLink, TransportContractTest,
                         ::testing::Values(Over("paced",
                                                {.bytes_per_second = 400e6,
                                                 .delay = absl::Microseconds(50),
                                                 .queue_bytes = 300'000,
                                                 .stall = absl::Milliseconds(1)},
                                                {.chunk_bytes = 60'000, .chunks_in_flight = 2})),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tidetape::collectives
