// The contract over one host and over two, and what only the composition can get wrong.
#include "collectives/transports/hybrid/hybrid_transport.h"

#include <signal.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/testing/rank_checks.h"
#include "collectives/testing/transport_contract.h"
#include "collectives/testing/two_hosts.h"
#include "collectives/transports/rendezvous/file_store.h"

namespace tidetape::collectives {
namespace {

absl::Time Soon() { return absl::Now() + absl::Seconds(30); }

// Made by the first test that needs them, in the test's own process, and held to its end.
absl::StatusOr<std::unique_ptr<TwoHosts>>& Hosts() {
  static auto& hosts = *new absl::StatusOr<std::unique_ptr<TwoHosts>>(TwoHosts::Make());
  return hosts;
}

absl::StatusOr<std::unique_ptr<Transport>> JoinOnHost(const GroupOptions& options, Store& store, int host) {
  if (absl::Status status = (*Hosts())->Enter(host); !status.ok()) return status;
  return HybridTransport::Join(store, options, {}, {.address = TwoHosts::Address(host)});
}

TransportUnderTest OnTwoHosts(const std::string& name, int (*host_of)(int rank, int size), const SharedRegion& shared_region) {
  return {name,
          [host_of](const GroupOptions& options, Store& store) {
            return JoinOnHost(options, store, host_of(options.rank, options.size));
          },
          shared_region, [] { return Hosts().status(); }};
}

absl::StatusOr<std::unique_ptr<Transport>> JoinOneHost(const GroupOptions& options, Store& store) {
  return HybridTransport::Join(store, options, {}, {});
}

int Halves(int rank, int size) { return 2 * rank >= size ? 1 : 0; }
int Alternating(int rank, int) { return rank % 2; }

INSTANTIATE_TEST_SUITE_P(Hybrid, TransportContractTest,
                         ::testing::Values(TransportUnderTest{"one_host", JoinOneHost, {}, {}}, OnTwoHosts("two_hosts", Halves, {}),
                                           OnTwoHosts("alternating", Alternating, {}),
                                           OnTwoHosts("two_hosts_shared_region", Halves, {8192, 40'960})),
                         [](const auto& info) { return info.param.name; });

// Four ranks, two on each host.
class TwoHostsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::Status status = Hosts().status();
    if (status.code() == absl::StatusCode::kPermissionDenied) GTEST_SKIP() << status.message();
    ASSERT_TRUE(status.ok()) << status;
  }

  std::vector<RankOutcome> Run(const std::function<absl::Status(HybridTransport& transport)>& body,
                               const std::string& address = "") {
    return RunRanks(4, absl::Seconds(60), [&](int rank) -> absl::Status {
      const int host = rank / 2;
      CONTRACT_OK((*Hosts())->Enter(host));
      FileStore store(folder_.path());
      GroupOptions options = {.rank = rank, .size = 4, .arena_bytes = 1 << 20, .shared_region = {0, 8192}};
      TcpOptions tcp = {.address = TwoHosts::Address(host), .dead_after = absl::Seconds(2), .linger = absl::Seconds(1)};
      if (rank == 2 && !address.empty()) tcp.address = address == "none" ? "" : address;
      options.join_timeout = absl::Seconds(20);
      auto transport = HybridTransport::Join(store, options, {}, tcp);
      if (!transport.ok()) return transport.status();
      return body(**transport);
    });
  }

  TemporaryFolder folder_;
};

TEST_F(TwoHostsTest, MemoryIsSharedWithinAHostOnly) {
  const auto outcomes = Run([](HybridTransport& transport) -> absl::Status {
    const int first = transport.rank() / 2 * 2;
    CONTRACT_EXPECT(transport.LocalPeers() == absl::Span<const int>({first, first + 1}));
    CONTRACT_EXPECT(transport.PeerArena(first ^ 2).empty());
    const std::vector<std::byte> source(100, std::byte{5});
    // Once a host: rank 0 sends to rank 2, and rank 3 has the bytes, too.
    if (transport.rank() == 0) {
      CONTRACT_OK(transport.PutSignal(2, source, 0, 0));
      CONTRACT_OK(transport.PutSignal(2, source, 10'000, 0));
    }
    if (transport.rank() == 2) {
      CONTRACT_OK(transport.WaitSignal(0, 0, 2, Soon()));
      CONTRACT_OK(transport.Signal(3, 0));
      CONTRACT_EXPECT(transport.arena()[10'000] == std::byte{5});
    }
    if (transport.rank() == 3) {
      CONTRACT_OK(transport.WaitSignal(2, 0, 1, Soon()));
      CONTRACT_EXPECT(transport.arena()[10'000] == std::byte{0});
    }
    CONTRACT_EXPECT(transport.arena()[0] == std::byte(transport.rank() >= 2 ? 5 : 0));
    for (int peer = 0; peer < 4; ++peer) CONTRACT_OK(transport.Signal(peer, 1));
    for (int peer = 0; peer < 4; ++peer) CONTRACT_OK(transport.WaitSignal(peer, 1, 1, Soon()));
    return absl::OkStatus();
  });
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.status.ok()) << outcome;
}

TEST_F(TwoHostsTest, ACutLinkReachesRanksThatWaitForTheirOwnHost) {
  const auto outcomes = Run([](HybridTransport& transport) -> absl::Status {
    for (int peer = 0; peer < 4; ++peer) CONTRACT_OK(transport.Signal(peer, 1));
    for (int peer = 0; peer < 4; ++peer) CONTRACT_OK(transport.WaitSignal(peer, 1, 1, Soon()));
    if (transport.rank() == 0) CONTRACT_OK((*Hosts())->Cut());
    return transport.WaitSignal(transport.rank() ^ 1, 2, 1, Soon());
  });
  ASSERT_TRUE((*Hosts())->Mend().ok());
  for (size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(outcomes[rank].status.code(), absl::StatusCode::kUnavailable) << outcomes[rank];
    EXPECT_NE(outcomes[rank].status.message().find("the group is broken"), absl::string_view::npos) << outcomes[rank];
  }
}

TEST_F(TwoHostsTest, ARankWithoutAnAddressIsNamedOnAllRanks) {
  const auto outcomes = Run([](HybridTransport&) { return absl::OkStatus(); }, "none");
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kFailedPrecondition) << outcome;
    EXPECT_NE(outcome.status.message().find("rank 2 has no TCP address"), absl::string_view::npos) << outcome;
  }
}

}  // namespace
}  // namespace tidetape::collectives
