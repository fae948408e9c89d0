// The contract's part on what goes wrong: deadlines, misuse, deaths, departures.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/testing/rank_checks.h"
#include "collectives/testing/rank_traffic.h"
#include "collectives/testing/transport_contract.h"
#include "collectives/transports/rendezvous/file_store.h"

namespace tidetape::collectives {
namespace {

TEST_P(TransportContractTest, ADeadlineNamesPeerAndSignal) {
  RunWell(2, 4096, [](Transport& transport) -> absl::Status {
    const int peer = 1 - transport.rank();
    CONTRACT_OK(transport.Signal(peer, 7));
    CONTRACT_ERROR(transport.WaitSignal(peer, 7, 3, absl::Now() + absl::Milliseconds(300)), absl::StatusCode::kDeadlineExceeded,
                   absl::StrCat("WaitSignal(rank ", peer, ", signal 7): 1 of 3 signals"));
    // Nothing was consumed.
    CONTRACT_OK(transport.WaitSignal(peer, 7, 1, absl::InfinitePast()));
    CONTRACT_OK(transport.WaitSignal(peer, 7, 0, absl::InfinitePast()));
    return Barrier(transport);
  });
}

TEST_P(TransportContractTest, MisuseIsRefusedAndHarmsNothing) {
  RunWell(2, 8192, [](Transport& transport) -> absl::Status {
    using absl::StatusCode;
    const int peer = 1 - transport.rank();
    const Bytes source(100);
    const uint64_t bytes = transport.arena().size();
    CONTRACT_ERROR(transport.PutSignal(2, source, 0, 0), StatusCode::kInvalidArgument,
                   "PutSignal(rank 2, offset 0, 100 bytes, signal 0): the group has ranks 0 to 1");
    CONTRACT_ERROR(transport.PutSignal(-1, source, 0, 0), StatusCode::kInvalidArgument, "rank -1");
    CONTRACT_ERROR(transport.PutSignal(peer, source, 0, 16), StatusCode::kInvalidArgument, "signal indices are 0 to 15");
    CONTRACT_ERROR(transport.PutSignal(peer, source, 0, -1), StatusCode::kInvalidArgument, "signal indices are 0 to 15");
    CONTRACT_ERROR(transport.PutSignal(peer, source, bytes - 99, 0), StatusCode::kOutOfRange,
                   absl::StrCat("offset ", bytes - 99, ", 100 bytes"));
    CONTRACT_ERROR(transport.PutSignal(peer, source, ~uint64_t{0}, 0), StatusCode::kOutOfRange, "the arena has");
    CONTRACT_ERROR(transport.PutSignal(peer, {}, bytes + 1, 0), StatusCode::kOutOfRange, "the arena has");
    CONTRACT_ERROR(transport.Signal(2, 0), StatusCode::kInvalidArgument, "Signal(rank 2, signal 0)");
    CONTRACT_ERROR(transport.Signal(peer, 16), StatusCode::kInvalidArgument, "Signal(rank");
    CONTRACT_ERROR(transport.WaitSignal(2, 0, 1, Soon()), StatusCode::kInvalidArgument, "WaitSignal(rank 2, signal 0)");
    CONTRACT_ERROR(transport.WaitSignal(peer, 16, 1, Soon()), StatusCode::kInvalidArgument, "WaitSignal(rank");
    CONTRACT_ERROR(transport.Multicast({peer, 5}, source, 0, 1), StatusCode::kInvalidArgument, "rank 5");
    CONTRACT_OK(transport.PutSignal(peer, source, bytes - 100, 0));
    CONTRACT_OK(transport.PutSignal(peer, {}, bytes, 0));
    CONTRACT_OK(transport.WaitSignal(peer, 0, 2, Soon()));
    CONTRACT_ERROR(transport.WaitSignal(peer, 0, 1, absl::InfinitePast()), StatusCode::kDeadlineExceeded, "0 of 1");
    return Barrier(transport);
  });
}

TEST_P(TransportContractTest, ADeathEndsAllWaitsOfAllRanksAndIsNamed) {
  // Rank 1 dies. Rank 0 waits for it, ranks 2 and 3 for each other. Nobody may leave before all have seen it.
  const auto outcomes = Run(4, 4096, [](Transport& transport) -> absl::Status {
    CONTRACT_OK(Barrier(transport));
    if (transport.rank() == 1) {
      CONTRACT_OK(transport.Signal(0, 3));
      // Until it has arrived.
      CONTRACT_OK(transport.WaitSignal(0, 4, 1, Soon()));
      raise(SIGKILL);
    }
    if (transport.rank() == 0) {
      CONTRACT_OK(transport.WaitSignal(1, 3, 1, Soon()));
      CONTRACT_OK(transport.Signal(1, 4));
    }
    const int waits_for = transport.rank() == 0 ? 1 : 5 - transport.rank();
    return transport.WaitSignal(waits_for, 3, 1, Soon());
  });
  EXPECT_EQ(outcomes[1].killed_by, SIGKILL);
  for (size_t rank : {0, 2, 3}) {
    EXPECT_EQ(outcomes[rank].status.code(), absl::StatusCode::kUnavailable) << "rank " << rank << ": " << outcomes[rank];
    EXPECT_NE(outcomes[rank].status.message().find("rank 1 "), absl::string_view::npos) << outcomes[rank];
    EXPECT_NE(outcomes[rank].status.message().find("WaitSignal(rank "), absl::string_view::npos) << outcomes[rank];
  }
}

TEST_P(TransportContractTest, AfterADeathPutsFailAndWhatHadArrivedCounts) {
  const auto outcomes = Run(3, 4096, [](Transport& transport) -> absl::Status {
    if (transport.rank() == 1) {
      for (int peer : {0, 2}) {
        CONTRACT_OK(transport.Signal(peer, 3));
        CONTRACT_OK(transport.Signal(peer, 4));
        CONTRACT_OK(transport.WaitSignal(peer, 5, 1, Soon()));
      }
      raise(SIGKILL);
    }
    CONTRACT_OK(transport.WaitSignal(1, 3, 1, Soon()));
    CONTRACT_OK(transport.Signal(1, 5));
    CONTRACT_ERROR(transport.WaitSignal(1, 3, 1, Soon()), absl::StatusCode::kUnavailable, "rank 1 ");
    CONTRACT_OK(transport.WaitSignal(1, 4, 1, Soon()));
    const Bytes source(100);
    const int other = 2 - transport.rank();
    CONTRACT_ERROR(transport.PutSignal(1, source, 0, 0), absl::StatusCode::kUnavailable, "rank 1 ");
    CONTRACT_ERROR(transport.PutSignal(other, source, 0, 0), absl::StatusCode::kUnavailable, "rank 1 ");
    CONTRACT_ERROR(transport.Signal(other, 0), absl::StatusCode::kUnavailable, "rank 1 ");
    return absl::OkStatus();
  });
  for (size_t rank : {0, 2}) EXPECT_TRUE(outcomes[rank].status.ok()) << "rank " << rank << ": " << outcomes[rank];
}

TEST_P(TransportContractTest, LeavingInOrderDeliversFirstAndBreaksOnlyCallsThatNameTheRank) {
  RunWell(3, 2 << 20, [](Transport& transport) -> absl::Status {
    const Bytes pattern = Pattern(5, 1 << 20);
    if (transport.rank() == 1) {
      // Leaves as soon as the source may go.
      CONTRACT_OK(transport.PutSignal(0, pattern, 0, 0));
      CONTRACT_OK(transport.Signal(2, 0));
      return transport.Flush(Soon());
    }
    CONTRACT_ERROR(transport.WaitSignal(1, 1, 1, Soon()), absl::StatusCode::kUnavailable, "rank 1 has left");
    CONTRACT_OK(transport.WaitSignal(1, 0, 1, Soon()));
    if (transport.rank() == 0) CONTRACT_EXPECT(Equal(pattern, transport.arena().subspan(0, pattern.size())));
    CONTRACT_ERROR(transport.Signal(1, 0), absl::StatusCode::kUnavailable, "rank 1 has left");
    const int other = 2 - transport.rank();
    CONTRACT_OK(transport.PutSignal(other, pattern, 1 << 20, 2));
    CONTRACT_OK(transport.WaitSignal(other, 2, 1, Soon()));
    CONTRACT_OK(transport.Flush(Soon()));
    CONTRACT_OK(transport.Signal(other, 3));
    return transport.WaitSignal(other, 3, 1, Soon());
  });
}

TEST_P(TransportContractTest, AChildProcessThatDropsItsCopyHarmsNothing) {
  const auto outcomes = RunRanks(2, absl::Seconds(100), [&](int rank) -> absl::Status {
    FileStore store(folder_.path());
    GroupOptions options = Options(2);
    options.rank = rank;
    options.arena_bytes = std::max<uint64_t>(4096, options.shared_region.offset + options.shared_region.bytes);
    auto transport = GetParam().join(options, store);
    CONTRACT_OK(transport.status());
    // As a data loader's worker may, when it collects garbage.
    const pid_t child = fork();
    if (child == 0) {
      transport->reset();
      _exit(0);
    }
    int how = 0;
    CONTRACT_EXPECT(waitpid(child, &how, 0) == child && how == 0);
    for (int i = 0; i < 3; ++i) CONTRACT_OK(Barrier(**transport));
    return absl::OkStatus();
  });
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.status.ok()) << outcome;
}

TEST_P(TransportContractTest, ADifferentLayoutKeepsTheGroupFromForming) {
  const auto outcomes = RunRanks(3, absl::Seconds(60), [&](int rank) {
    FileStore store(folder_.path());
    GroupOptions options = Options(3);
    options.rank = rank;
    options.arena_bytes = std::max<uint64_t>(4096, options.shared_region.offset + options.shared_region.bytes);
    if (rank == 2) options.layout_hash = "another";
    return GetParam().join(options, store).status();
  });
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kFailedPrecondition) << outcome;
    EXPECT_NE(outcome.status.message().find("rank 2 has layout hash another, rank 0 has contract"), absl::string_view::npos)
        << outcome;
  }
}

}  // namespace
}  // namespace tidetape::collectives
