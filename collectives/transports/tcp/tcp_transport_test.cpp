// What TCP promises beyond the contract of all transports.
#include "collectives/transports/tcp/tcp_transport.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/testing/rank_checks.h"
#include "collectives/testing/rank_processes.h"
#include "collectives/testing/two_hosts.h"
#include "collectives/transports/rendezvous/file_store.h"
#include "collectives/transports/tcp/introduction.h"
#include "collectives/transports/tcp/socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidetape::collectives {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kArena = 16 << 20;

absl::Time Soon() { return absl::Now() + absl::Seconds(30); }

class TcpTransportTest : public ::testing::Test {
 protected:
  GroupOptions Options(int rank, int size) const {
    return {.rank = rank, .size = size, .signals = 8, .arena_bytes = kArena, .join_timeout = absl::Seconds(30)};
  }

  absl::StatusOr<std::unique_ptr<TcpTransport>> Join(int rank, int size, const TcpOptions& tcp) const {
    FileStore store(folder_.path());
    return TcpTransport::Join(store, Options(rank, size), tcp);
  }

  // Joins as rank 1 of 2 with nothing behind the socket: a peer that does as a test says.
  absl::StatusOr<UniqueFd> JoinAsBareSocket() const {
    FileStore store(folder_.path());
    auto prepared = TcpTransport::Prepare({.address = "127.0.0.1"});
    if (!prepared.ok()) return prepared.status();
    auto roster = Meet(store, Options(1, 2), {"", "", prepared->address}, Soon());
    if (!roster.ok()) return roster.status();
    auto peers = ConnectAll(prepared->listener.get(), 1, *roster, {0}, Soon());
    if (!peers.ok()) return peers.status();
    return std::move((*peers)[0].socket);
  }

  // Rank 0 with a transport, rank 1 with a bare socket.
  void RunWithBareSocket(const TcpOptions& tcp, const std::function<absl::Status(TcpTransport&)>& rank,
                         const std::function<absl::Status(int socket)>& bare) {
    const auto outcomes = RunRanks(2, absl::Seconds(60), [&](int r) -> absl::Status {
      if (r == 1) {
        auto socket = JoinAsBareSocket();
        if (!socket.ok()) return socket.status();
        return bare(socket->get());
      }
      auto transport = Join(0, 2, tcp);
      if (!transport.ok()) return transport.status();
      return rank(**transport);
    });
    for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.status.ok()) << outcome;
  }

  TemporaryFolder folder_;
};

// Reads until nothing comes for a while, or the other side hangs up.
size_t ReadAll(int socket, absl::Duration quiet) {
  std::vector<char> buffer(1 << 20);
  size_t bytes = 0;
  while (WaitFor(socket, POLLIN, absl::Now() + quiet)) {
    const ssize_t n = recv(socket, buffer.data(), buffer.size(), 0);
    if (n <= 0) break;
    bytes += static_cast<size_t>(n);
  }
  return bytes;
}

TEST_F(TcpTransportTest, StrangersAreDroppedAndDoNotKeepTheGroupFromForming) {
  const auto outcomes = RunRanks(2, absl::Seconds(30), [&](int rank) -> absl::Status {
    FileStore store(folder_.path());
    auto prepared = TcpTransport::Prepare({.address = "127.0.0.1"});
    CONTRACT_OK(prepared.status());
    auto roster = Meet(store, Options(rank, 2), {"", "", prepared->address}, Soon());
    CONTRACT_OK(roster.status());
    std::vector<UniqueFd> silent;
    if (rank == 1) {
      const Endpoint target = *ParseEndpoint(roster->members[0].tcp_address);
      // More that say nothing than there is patience for, one that talks nonsense, one with a wrong token.
      for (int i = 0; i < 100; ++i) {
        auto socket = ConnectTo(target, Soon());
        CONTRACT_OK(socket.status());
        silent.push_back(*std::move(socket));
      }
      auto nonsense = ConnectTo(target, Soon());
      CONTRACT_OK(nonsense.status());
      const std::string words(4096, 'x');
      CONTRACT_EXPECT(send(nonsense->get(), words.data(), words.size(), MSG_NOSIGNAL) > 0);
      CONTRACT_EXPECT(ReadAll(nonsense->get(), absl::Seconds(10)) == 0);
      Roster wrong = *roster;
      wrong.token[31] ^= 1;
      CONTRACT_ERROR(ConnectAll(prepared->listener.get(), 1, wrong, {0}, Soon()).status(), absl::StatusCode::kUnavailable,
                     "rank 0 at 127.0.0.1");
    }
    auto peers = ConnectAll(prepared->listener.get(), rank, *roster, {1 - rank}, Soon());
    CONTRACT_OK(peers.status());
    CONTRACT_EXPECT((*peers)[0].rank == 1 - rank);
    return absl::OkStatus();
  });
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.status.ok()) << outcome;
}

TEST_F(TcpTransportTest, AnUnreachableRankIsNamed) {
  // Rank 1 dies between meeting and connecting; rank 2 waits for nobody above it, rank 0 for rank 1.
  const auto outcomes = RunRanks(3, absl::Seconds(30), [&](int rank) -> absl::Status {
    FileStore store(folder_.path());
    auto prepared = TcpTransport::Prepare({.address = "127.0.0.1"});
    CONTRACT_OK(prepared.status());
    auto roster = Meet(store, Options(rank, 3), {"", "", prepared->address}, Soon());
    CONTRACT_OK(roster.status());
    if (rank == 1) raise(SIGKILL);
    if (rank == 2) absl::SleepFor(absl::Milliseconds(200));
    const std::vector<int> peers = rank == 0 ? std::vector<int>{1, 2} : std::vector<int>{0, 1};
    return ConnectAll(prepared->listener.get(), rank, *roster, peers, absl::Now() + absl::Seconds(1)).status();
  });
  EXPECT_EQ(outcomes[0].status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(outcomes[0].status.message()), HasSubstr("rank 1 did not connect to rank 0 in time"));
  EXPECT_THAT(std::string(outcomes[2].status.message()), HasSubstr("rank 1: cannot connect to 127.0.0.1"));
}

TEST_F(TcpTransportTest, AFullQueueBlocksThenFailsNamingTheCall) {
  RunWithBareSocket(
      {.address = "127.0.0.1", .queue_puts = 3, .queue_timeout = absl::Milliseconds(300), .linger = absl::Milliseconds(100)},
      [](TcpTransport& transport) -> absl::Status {
        // More than all kernel buffers hold, to a peer that reads nothing.
        const std::vector<std::byte> source(kArena);
        absl::Status status;
        int accepted = 0;
        while (status.ok() && accepted < 100) {
          status = transport.PutSignal(1, source, 0, 4);
          accepted += status.ok() ? 1 : 0;
        }
        CONTRACT_ERROR(status, absl::StatusCode::kDeadlineExceeded,
                       "PutSignal(rank 1, offset 0, 16777216 bytes, signal 4): the queue of 3 puts to rank 1 stayed full");
        CONTRACT_EXPECT(accepted >= 3 && accepted <= 5);
        CONTRACT_ERROR(transport.Flush(absl::Now() + absl::Milliseconds(100)), absl::StatusCode::kDeadlineExceeded,
                       "Flush: puts to rank 1 still waited");
        // And leaving takes no longer than it may.
        return absl::OkStatus();
      },
      [](int socket) -> absl::Status {
        absl::SleepFor(absl::Seconds(1));
        ReadAll(socket, absl::Seconds(5));
        return absl::OkStatus();
      });
}

TEST_F(TcpTransportTest, AFullQueueLetsPutsThroughAsThePeerReads) {
  RunWithBareSocket(
      {.address = "127.0.0.1", .queue_puts = 2, .linger = absl::Milliseconds(100)},
      [](TcpTransport& transport) -> absl::Status {
        const std::vector<std::byte> source(kArena);
        for (int i = 0; i < 8; ++i) CONTRACT_OK(transport.PutSignal(1, source, 0, 4));
        return transport.Flush(Soon());
      },
      [](int socket) -> absl::Status {
        absl::SleepFor(absl::Milliseconds(100));
        CONTRACT_EXPECT(ReadAll(socket, absl::Seconds(5)) >= 8 * kArena);
        return absl::OkStatus();
      });
}

TEST_F(TcpTransportTest, NoMoreLeavesThanPacingAllowsUntilThePeerAnswers) {
  RunWithBareSocket(
      {.address = "127.0.0.1", .pacing = {.chunk_bytes = 10'000, .chunks_in_flight = 3}, .linger = absl::Milliseconds(100)},
      [](TcpTransport& transport) -> absl::Status {
        const std::vector<std::byte> source(200'000);
        CONTRACT_OK(transport.PutSignal(1, source, 0, 0));
        CONTRACT_OK(transport.WaitSignal(1, 0, 1, Soon()));
        // Unpaced from here: all the rest comes.
        transport.SetPacing({});
        CONTRACT_OK(transport.Flush(Soon()));
        return transport.WaitSignal(1, 1, 1, Soon());
      },
      [](int socket) -> absl::Status {
        constexpr size_t kChunk = 10'000 + sizeof(FrameHeader);
        CONTRACT_EXPECT(ReadAll(socket, absl::Milliseconds(300)) == 3 * kChunk);
        // The peer has placed two chunks; it says so, then lets the sender go on.
        const FrameHeader acks = {.type = FrameType::kAck, .bytes = 2};
        CONTRACT_EXPECT(send(socket, &acks, sizeof(acks), MSG_NOSIGNAL) == sizeof(acks));
        CONTRACT_EXPECT(ReadAll(socket, absl::Milliseconds(300)) == 2 * kChunk);
        FrameHeader signal = {.signal = 0};
        CONTRACT_EXPECT(send(socket, &signal, sizeof(signal), MSG_NOSIGNAL) == sizeof(signal));
        CONTRACT_EXPECT(ReadAll(socket, absl::Milliseconds(300)) == 150'000 + sizeof(FrameHeader));
        signal.signal = 1;
        CONTRACT_EXPECT(send(socket, &signal, sizeof(signal), MSG_NOSIGNAL) == sizeof(signal));
        ReadAll(socket, absl::Seconds(5));
        return absl::OkStatus();
      });
}

TEST_F(TcpTransportTest, CountedChunksAreAnswered) {
  RunWithBareSocket(
      {.address = "127.0.0.1", .linger = absl::Milliseconds(100)},
      [](TcpTransport& transport) -> absl::Status { return transport.WaitSignal(1, 2, 1, Soon()); },
      [](int socket) -> absl::Status {
        for (int i = 0; i < 3; ++i) {
          const FrameHeader chunk = {.type = FrameType::kCountedPut, .signal = -1};
          CONTRACT_EXPECT(send(socket, &chunk, sizeof(chunk), MSG_NOSIGNAL) == sizeof(chunk));
        }
        uint64_t answered = 0;
        while (answered < 3) {
          FrameHeader ack;
          CONTRACT_EXPECT(WaitFor(socket, POLLIN, Soon()));
          CONTRACT_EXPECT(recv(socket, &ack, sizeof(ack), MSG_WAITALL) == sizeof(ack));
          CONTRACT_EXPECT(ack.type == FrameType::kAck);
          answered += ack.bytes;
        }
        const FrameHeader signal = {.signal = 2};
        CONTRACT_EXPECT(send(socket, &signal, sizeof(signal), MSG_NOSIGNAL) == sizeof(signal));
        ReadAll(socket, absl::Seconds(5));
        return absl::OkStatus();
      });
}

TEST_F(TcpTransportTest, APeerThatSendsNonsenseIsLostAndTouchesNothing) {
  FrameHeader outside = {.signal = 0, .offset = kArena - 1, .bytes = 2};
  const FrameHeader no_frame = {.magic = 7};
  FrameHeader bad_signal = {.signal = 8};
  for (const auto& [header, message] : std::vector<std::pair<FrameHeader, std::string>>{
           {outside, "rank 1 sent a put outside the arena: offset 16777215, 2 bytes, signal 0"},
           {no_frame, "rank 1 sent bytes that are no frame"},
           {bad_signal, "rank 1 sent a put outside the arena: offset 0, 0 bytes, signal 8"}}) {
    folder_.Clear();
    RunWithBareSocket(
        {.address = "127.0.0.1", .linger = absl::Milliseconds(100)},
        [&, message = message](TcpTransport& transport) -> absl::Status {
          CONTRACT_ERROR(transport.WaitSignal(1, 0, 1, Soon()), absl::StatusCode::kUnavailable, message);
          for (std::byte byte : transport.arena()) CONTRACT_EXPECT(byte == std::byte{0});
          return absl::OkStatus();
        },
        [&, header = header](int socket) -> absl::Status {
          std::string words(reinterpret_cast<const char*>(&header), sizeof(header));
          words += std::string(100, 'x');
          CONTRACT_EXPECT(send(socket, words.data(), words.size(), MSG_NOSIGNAL) > 0);
          ReadAll(socket, absl::Seconds(1));
          return absl::OkStatus();
        });
  }
}

TEST_F(TcpTransportTest, ACutLinkIsNoticedWhetherIdleOrBusyAndNamesThePeer) {
  const auto hosts = TwoHosts::Make();
  if (hosts.status().code() == absl::StatusCode::kPermissionDenied) GTEST_SKIP() << hosts.status().message();
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  for (const bool busy : {false, true}) {
    folder_.Clear();
    const auto outcomes = RunRanks(2, absl::Seconds(60), [&](int rank) -> absl::Status {
      CONTRACT_OK((*hosts)->Enter(rank));
      auto joined =
          Join(rank, 2, {.address = TwoHosts::Address(rank), .dead_after = absl::Seconds(2), .linger = absl::Milliseconds(100)});
      CONTRACT_OK(joined.status());
      TcpTransport& transport = **joined;
      CONTRACT_OK(transport.Signal(1 - rank, 0));
      CONTRACT_OK(transport.WaitSignal(1 - rank, 0, 1, Soon()));
      if (rank == 0) CONTRACT_OK((*hosts)->Cut());
      const std::vector<std::byte> source(kArena);
      if (busy) transport.PutSignal(1 - rank, source, 0, 1).IgnoreError();
      // Far before this deadline.
      return transport.WaitSignal(1 - rank, 0, 1, Soon());
    });
    ASSERT_TRUE((*hosts)->Mend().ok());
    for (int rank : {0, 1}) {
      const absl::Status& status = outcomes[static_cast<size_t>(rank)].status;
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("rank ", 1 - rank, " cannot be reached: ")));
    }
  }
}

TEST_F(TcpTransportTest, AnAddressOfAnotherHostIsRefusedOnAllRanks) {
  const auto outcomes = RunRanks(
      2, absl::Seconds(30), [&](int rank) { return Join(rank, 2, {.address = rank == 0 ? "127.0.0.1" : "192.0.2.1"}).status(); });
  EXPECT_THAT(std::string(outcomes[1].status.message()), HasSubstr("cannot listen on 192.0.2.1"));
  EXPECT_THAT(std::string(outcomes[0].status.message()),
              HasSubstr("rank 1 cannot take part: UNAVAILABLE: cannot listen on 192.0.2.1"));
}

}  // namespace
}  // namespace tidetape::collectives
