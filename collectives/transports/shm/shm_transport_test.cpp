// What shared memory promises beyond the contract of all transports.
#include "collectives/transports/shm/shm_transport.h"

#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/testing/private_tmpfs.h"
#include "collectives/testing/rank_checks.h"
#include "collectives/testing/rank_processes.h"
#include "collectives/transports/rendezvous/file_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidetape::collectives {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kArena = 1 << 20;

absl::Time Soon() { return absl::Now() + absl::Seconds(30); }

class ShmTransportTest : public ::testing::Test {
 protected:
  GroupOptions Options(int rank, int size) const {
    return {.rank = rank, .size = size, .signals = 8, .arena_bytes = kArena, .join_timeout = absl::Seconds(30)};
  }

  absl::StatusOr<std::unique_ptr<ShmTransport>> Join(const GroupOptions& options) const {
    FileStore store(store_.path());
    return ShmTransport::Join(store, options, {.folder = shm_folder_});
  }

  // Runs `body` in a process that sees a tmpfs of its own at shm_folder_, of the given size. Not ok where it fails; skips where the
  // machine does not allow it.
  void WithTmpfs(uint64_t bytes, const std::function<absl::Status()>& body) {
    shm_folder_ = tmpfs_.path();
    const auto outcome = RunRanks(1, absl::Seconds(60), [&](int) {
      if (absl::Status status = MountPrivateTmpfs(shm_folder_, bytes); !status.ok()) return status;
      return body();
    })[0];
    if (outcome.status.code() == absl::StatusCode::kPermissionDenied) GTEST_SKIP() << outcome.status.message();
    EXPECT_TRUE(outcome.status.ok()) << outcome;
  }

  TemporaryFolder store_;
  TemporaryFolder tmpfs_;
  std::string shm_folder_ = "/dev/shm";
};

TEST_F(ShmTransportTest, AFullFolderIsAnErrorOnAllRanksBeforeAnyStore) {
  // Room for two arenas of three.
  WithTmpfs(2 * kArena + kArena / 2, [&]() -> absl::Status {
    const auto outcomes = RunRanks(3, absl::Seconds(30), [&](int rank) { return Join(Options(rank, 3)).status(); });
    int exhausted = 0;
    for (const auto& outcome : outcomes) {
      if (outcome.status.code() == absl::StatusCode::kResourceExhausted) {
        ++exhausted;
        CONTRACT_ERROR(outcome.status, absl::StatusCode::kResourceExhausted,
                       "are free: No space left on device; free some, or enlarge it");
      } else {
        CONTRACT_ERROR(outcome.status, absl::StatusCode::kUnavailable, "cannot take part: RESOURCE_EXHAUSTED: cannot reserve");
      }
    }
    CONTRACT_EXPECT(exhausted >= 1);
    CONTRACT_EXPECT(BytesTaken(shm_folder_) == 0);
    return absl::OkStatus();
  });
}

TEST_F(ShmTransportTest, AFullFolderForTheSharedRegionIsAnErrorOnAllRanks) {
  WithTmpfs(kArena + kArena / 2, [&]() -> absl::Status {
    const auto outcomes = RunRanks(2, absl::Seconds(30), [&](int rank) {
      GroupOptions options = Options(rank, 2);
      options.shared_region = {0, kArena};
      options.arena_bytes = kArena + kArena / 2;
      return Join(options).status();
    });
    for (const auto& outcome : outcomes) {
      CONTRACT_ERROR(outcome.status, absl::StatusCode::kResourceExhausted, "the region that this host's ranks share");
    }
    return absl::OkStatus();
  });
}

TEST_F(ShmTransportTest, NothingIsLeftBehindWhenAllRanksAreKilled) {
  WithTmpfs(16 * kArena, [&]() -> absl::Status {
    const auto outcomes = RunRanks(3, absl::Seconds(30), [&](int rank) -> absl::Status {
      auto transport = Join(Options(rank, 3));
      CONTRACT_OK(transport.status());
      CONTRACT_EXPECT(BytesTaken(shm_folder_) >= 3 * kArena);
      raise(SIGKILL);
      return absl::OkStatus();
    });
    for (const auto& outcome : outcomes) CONTRACT_EXPECT(outcome.killed_by == SIGKILL);
    CONTRACT_EXPECT(BytesTaken(shm_folder_) == 0);
    return absl::OkStatus();
  });
}

TEST_F(ShmTransportTest, TheSharedRegionTakesMemoryOnceAndTheRestOnceARank) {
  for (int ranks : {1, 2, 4}) {
    WithTmpfs(64 * kArena, [&]() -> absl::Status {
      const auto outcomes = RunRanks(ranks, absl::Seconds(30), [&](int rank) -> absl::Status {
        GroupOptions options = Options(rank, ranks);
        options.arena_bytes = 5 * kArena;
        options.shared_region = {kArena, 3 * kArena};
        options.name = absl::StrCat("group of ", ranks);
        auto joined = Join(options);
        CONTRACT_OK(joined.status());
        ShmTransport& transport = **joined;
        const auto wait_for_all = [&]() -> absl::Status {
          for (int peer = 0; peer < ranks; ++peer) CONTRACT_OK(transport.Signal(peer, 0));
          for (int peer = 0; peer < ranks; ++peer) CONTRACT_OK(transport.WaitSignal(peer, 0, 1, Soon()));
          return absl::OkStatus();
        };
        // All of every arena is touched, so that memory which is not reserved would show.
        std::fill(transport.arena().begin(), transport.arena().end(), std::byte(rank));
        CONTRACT_OK(wait_for_all());
        const ShmUsage usage = transport.usage();
        CONTRACT_EXPECT(usage.shared_bytes == 3 * kArena);
        CONTRACT_EXPECT(usage.private_bytes >= 2 * kArena && usage.private_bytes <= 2 * kArena + 8192);
        CONTRACT_EXPECT(BytesTaken(shm_folder_) == usage.shared_bytes + static_cast<uint64_t>(ranks) * usage.private_bytes);
        return wait_for_all();
      });
      for (const auto& outcome : outcomes) CONTRACT_OK(outcome.status);
      return absl::OkStatus();
    });
  }
}

TEST_F(ShmTransportTest, OneWriteToTheSharedRegionServesAllRanks) {
  const auto outcomes = RunRanks(3, absl::Seconds(30), [&](int rank) -> absl::Status {
    GroupOptions options = Options(rank, 3);
    options.shared_region = {8192, 65'536};
    auto joined = Join(options);
    CONTRACT_OK(joined.status());
    ShmTransport& transport = **joined;
    const std::vector<std::byte> source(1000, std::byte{7});
    if (rank == 1) {
      // To rank 0 only; rank 2 has the bytes all the same.
      CONTRACT_OK(transport.PutSignal(0, source, 8192, 0));
      CONTRACT_OK(transport.Signal(2, 0));
      // From the place itself nothing is copied, and overlapping ranges are right.
      CONTRACT_OK(transport.Multicast({0, 2}, transport.arena().subspan(8192, 1000), 8192, 1));
      transport.arena()[8192] = std::byte{9};
      CONTRACT_OK(transport.Multicast({0, 2}, transport.arena().subspan(8192, 1000), 8193, 2));
      CONTRACT_OK(transport.PutSignal(0, source, 0, 3));
    } else {
      CONTRACT_OK(transport.WaitSignal(1, 2, 1, Soon()));
      CONTRACT_EXPECT(transport.arena()[8193] == std::byte{9});
      for (std::byte byte : transport.arena().subspan(8194, 999)) CONTRACT_EXPECT(byte == std::byte{7});
      CONTRACT_OK(transport.WaitSignal(1, 0, 1, Soon()));
      CONTRACT_OK(transport.WaitSignal(1, 1, 1, Soon()));
      // Outside the region memory is each rank's own.
      if (rank == 0) CONTRACT_OK(transport.WaitSignal(1, 3, 1, Soon()));
      CONTRACT_EXPECT(transport.arena()[0] == std::byte(rank == 0 ? 7 : 0));
    }
    for (int peer = 0; peer < 3; ++peer) CONTRACT_OK(transport.Signal(peer, 5));
    for (int peer = 0; peer < 3; ++peer) CONTRACT_OK(transport.WaitSignal(peer, 5, 1, Soon()));
    return absl::OkStatus();
  });
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.status.ok()) << outcome;
}

TEST_F(ShmTransportTest, ADeathIsSeenThoughAChildProcessHoldsItsSockets) {
  const auto outcomes = RunRanks(2, absl::Seconds(30), [&](int rank) -> absl::Status {
    auto transport = Join(Options(rank, 2));
    CONTRACT_OK(transport.status());
    if (rank == 1) {
      if (fork() == 0) {
        // As a data loader's worker does: inherits all, and lives on a while.
        absl::SleepFor(absl::Seconds(3));
        _exit(0);
      }
      CONTRACT_OK((*transport)->Signal(0, 0));
      raise(SIGKILL);
    }
    CONTRACT_OK((*transport)->WaitSignal(1, 0, 1, Soon()));
    CONTRACT_ERROR((*transport)->WaitSignal(1, 0, 1, absl::Now() + absl::Milliseconds(1500)), absl::StatusCode::kUnavailable,
                   "rank 1 died");
    return absl::OkStatus();
  });
  EXPECT_TRUE(outcomes[0].status.ok()) << outcomes[0];
}

// Connects to an address that a rank published, says `words`, and returns what comes back; empty where the rank hangs up.
std::string AskAsStranger(const std::string& address, const std::string& words) {
  std::string name;
  absl::CUnescape(address, &name);
  sockaddr_un where = {};
  where.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), where.sun_path);
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  if (connect(socket, reinterpret_cast<const sockaddr*>(&where), length) != 0) return "no connection";
  send(socket, words.data(), words.size(), MSG_NOSIGNAL);
  char answer[1024];
  const ssize_t bytes = recv(socket, answer, sizeof(answer), 0);
  close(socket);
  return bytes <= 0 ? "" : std::string(answer, static_cast<size_t>(bytes));
}

TEST_F(ShmTransportTest, StrangersGetNothingAndDoNotKeepTheGroupFromForming) {
  // Ranks 0 and 1 meet; rank 1 holds back until strangers have called rank 0.
  const auto outcomes = RunRanks(2, absl::Seconds(30), [&](int rank) -> absl::Status {
    FileStore store(store_.path());
    const GroupOptions options = Options(rank, 2);
    auto prepared = ShmTransport::Prepare(options, {});
    CONTRACT_OK(prepared.status());
    auto roster = Meet(store, options, {"host", prepared->listener.address(), ""}, Soon());
    CONTRACT_OK(roster.status());
    if (rank == 1) {
      const std::string address = roster->members[0].shm_address;
      // The right form with a wrong token, then no form at all.
      CONTRACT_EXPECT(AskAsStranger(address, std::string(512, 'x')).empty());
      std::string forged(512, '\0');
      const uint32_t magic = 0x74746d31;
      std::memcpy(forged.data(), &magic, sizeof(magic));
      forged[4] = 1;
      CONTRACT_EXPECT(AskAsStranger(address, forged).empty());
      CONTRACT_EXPECT(AskAsStranger(address, "").empty());
    }
    auto transport = ShmTransport::Connect(*std::move(prepared), options, {}, *roster, std::make_shared<GroupHealth>(2), Soon());
    CONTRACT_OK(transport.status());
    CONTRACT_OK((*transport)->Signal(1 - rank, 0));
    return (*transport)->WaitSignal(1 - rank, 0, 1, Soon());
  });
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.status.ok()) << outcome;
}

TEST_F(ShmTransportTest, AnotherUserIsTurnedAwayEvenWithTheToken) {
  // Root of a sandbox may have one user only; the build runs this test outside of it.
  if (geteuid() != 0) GTEST_SKIP() << "this test needs root, to become another user";
  const auto outcomes = RunRanks(2, absl::Seconds(30), [&](int rank) -> absl::Status {
    FileStore store(store_.path());
    GroupOptions options = Options(rank, 2);
    options.join_timeout = absl::Seconds(5);
    auto prepared = ShmTransport::Prepare(options, {});
    CONTRACT_OK(prepared.status());
    auto roster = Meet(store, options, {"host", prepared->listener.address(), ""}, Soon());
    CONTRACT_OK(roster.status());
    if (rank == 1 && setuid(65'534) != 0) return absl::InternalError("cannot become another user");
    return ShmTransport::Connect(*std::move(prepared), options, {}, *roster, std::make_shared<GroupHealth>(2),
                                 absl::Now() + absl::Seconds(1))
        .status();
  });
  EXPECT_EQ(outcomes[0].status.code(), absl::StatusCode::kDeadlineExceeded) << outcomes[0];
  EXPECT_EQ(outcomes[1].status.code(), absl::StatusCode::kPermissionDenied) << outcomes[1];
  EXPECT_THAT(std::string(outcomes[1].status.message()), HasSubstr("runs as another user"));
}

TEST_F(ShmTransportTest, RanksOfAnotherHostAreNamed) {
  const auto outcomes = RunRanks(2, absl::Seconds(30), [&](int rank) {
    if (rank == 1 && unshare(geteuid() == 0 ? CLONE_NEWNET : CLONE_NEWNET | CLONE_NEWUSER) != 0) {
      return absl::PermissionDeniedError("this test needs root, or user namespaces for all");
    }
    GroupOptions options = Options(rank, 2);
    options.join_timeout = absl::Seconds(5);
    return Join(options).status();
  });
  if (outcomes[1].status.code() == absl::StatusCode::kPermissionDenied) GTEST_SKIP() << outcomes[1].status.message();
  EXPECT_THAT(std::string(outcomes[0].status.message()), HasSubstr("rank 1 is on another host"));
  EXPECT_THAT(std::string(outcomes[1].status.message()), HasSubstr("rank 0 is on another host"));
}

TEST_F(ShmTransportTest, AFolderThatIsNoTmpfsIsNamed) {
  shm_folder_ = "/proc";
  const absl::Status status = Join(Options(0, 1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("in /proc"));
}

}  // namespace
}  // namespace tidetape::collectives
