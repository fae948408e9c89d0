// Over links whose rate, delay and queue are known, between real processes.
#include "agent/fsdp/link_probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "collectives/testing/rank_checks.h"
#include "collectives/testing/rank_processes.h"
#include "collectives/testing/slow_link.h"
#include "collectives/transports/rendezvous/file_store.h"
#include "collectives/transports/tcp/tcp_transport.h"

namespace tidetape::agent {
namespace {

using collectives::FileStore;
using collectives::GroupOptions;
using collectives::LinkOptions;
using collectives::RankOutcome;
using collectives::SlowLinkStore;
using collectives::TcpTransport;
using collectives::TemporaryFolder;

constexpr double kRate = 100e6;

void Probe(int ranks, const LinkOptions& link, const std::function<absl::Status(const ProbedLinks&)>& check) {
  TemporaryFolder folder;
  const auto outcomes = collectives::RunRanks(ranks, absl::Seconds(100), [&](int rank) -> absl::Status {
    FileStore store(folder.path());
    SlowLinkStore slow(store, link);
    GroupOptions group;
    group.rank = rank;
    group.size = ranks;
    group.name = "probe";
    group.signals = kProbeSignals;
    group.arena_bytes = 1 << 20;
    auto transport = TcpTransport::Join(slow, group, {.address = "127.0.0.1"});
    CONTRACT_OK(transport.status());
    ProbeOptions options;
    options.scratch_bytes = group.arena_bytes;
    options.set_pacing = [&](const collectives::Pacing& pacing) { (*transport)->SetPacing(pacing); };
    const auto links = ProbeLinks(**transport, options);
    CONTRACT_OK(links.status());
    for (const std::byte byte : (*transport)->arena()) CONTRACT_EXPECT(byte == std::byte{0});
    return check(*links);
  });
  for (const RankOutcome& outcome : outcomes) EXPECT_TRUE(outcome.status.ok()) << outcome;
}

// No bytes pass faster than the link's rate, and no message sooner than its delay.
TEST(LinkProbeTest, SeesNoMoreThanTheLinkCanDo) {
  Probe(3, {.bytes_per_second = kRate, .delay = absl::Milliseconds(1), .queue_bytes = 1 << 20}, [](const ProbedLinks& links) {
    CONTRACT_EXPECT(!links.local.has_value());
    CONTRACT_EXPECT(links.network.has_value());
    CONTRACT_EXPECT(links.network->latency_seconds >= 1e-3 - links.network->put_seconds);
    CONTRACT_EXPECT(links.network->bytes_per_second > 0);
    CONTRACT_EXPECT(!links.network->windows.empty());
    for (const ProbedWindow& window : links.network->windows) {
      CONTRACT_EXPECT(window.bytes_per_second <= 1.2 * kRate);
      // A window a round trip: two delays and its own transfer.
      if (window.window_bytes > 0) {
        CONTRACT_EXPECT(window.bytes_per_second <= 1.5 * static_cast<double>(window.window_bytes) / 2e-3);
      }
    }
    return absl::OkStatus();
  });
}

// A burst is larger than the queue, so that without a bound there is a stall in it, and 0.1 s is longer than the burst.
TEST(LinkProbeTest, SeesThatAQueueOverruns) {
  Probe(2, {.bytes_per_second = kRate, .queue_bytes = 256 << 10, .stall = absl::Milliseconds(100)}, [](const ProbedLinks& links) {
    const auto& windows = links.network->windows;
    double unbounded = -1, small = 0;
    for (const ProbedWindow& window : windows) {
      if (window.window_bytes == 0) unbounded = window.bytes_per_second;
      if (window.window_bytes == 64 << 10 || window.window_bytes == 128 << 10) small = std::max(small, window.bytes_per_second);
    }
    CONTRACT_EXPECT(unbounded >= 0);
    CONTRACT_EXPECT(unbounded < small / 2);
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace tidetape::agent
