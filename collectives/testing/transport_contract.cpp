#include "collectives/testing/transport_contract.h"

#include <algorithm>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/testing/rank_checks.h"
#include "collectives/testing/rank_traffic.h"
#include "collectives/transports/rendezvous/file_store.h"

namespace tidetape::collectives {

std::ostream& operator<<(std::ostream& out, const TransportUnderTest& transport) { return out << transport.name; }

void TransportContractTest::SetUp() {
  if (!GetParam().set_up) return;
  const absl::Status status = GetParam().set_up();
  if (status.code() == absl::StatusCode::kPermissionDenied) GTEST_SKIP() << status.message();
  ASSERT_TRUE(status.ok()) << status;
}

GroupOptions TransportContractTest::Options(int size) const {
  GroupOptions options;
  options.size = size;
  options.signals = 16;
  options.layout_hash = "contract";
  options.shared_region = GetParam().shared_region;
  options.join_timeout = absl::Seconds(60);
  return options;
}

std::vector<RankOutcome> TransportContractTest::Run(int size, uint64_t arena_bytes, const Body& body) {
  const TemporaryFolder folder;
  return RunRanks(size, absl::Seconds(100), [&](int rank) -> absl::Status {
    FileStore store(folder.path());
    GroupOptions options = Options(size);
    options.rank = rank;
    options.arena_bytes = std::max(arena_bytes, options.shared_region.offset + options.shared_region.bytes);
    auto transport = GetParam().join(options, store);
    if (!transport.ok()) return transport.status();
    return body(**transport);
  });
}

void TransportContractTest::RunWell(int size, uint64_t arena_bytes, const Body& body) {
  const std::vector<RankOutcome> outcomes = Run(size, arena_bytes, body);
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    EXPECT_TRUE(outcomes[rank].status.ok()) << "rank " << rank << " of " << size << ": " << outcomes[rank];
  }
}

namespace {

struct RandomPut {
  uint64_t offset = 0;
  size_t bytes = 0;
  uint64_t seed = 0;
  int signal = 0;
};

// What `sender` puts to `receiver` in a round; both work it out. Later puts may overwrite earlier ones.
std::vector<RandomPut> PutsOf(int round, int sender, int receiver, uint64_t region) {
  static constexpr size_t kSizes[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 63, 64, 65, 1000, 4095, 4096, 4097, 65'537, 300'001};
  std::seed_seq seed = {round, sender, receiver};
  std::mt19937 random(seed);
  std::vector<RandomPut> puts(random() % 12);
  for (RandomPut& put : puts) {
    put.bytes = std::min<uint64_t>(kSizes[random() % std::size(kSizes)], region);
    put.offset = random() % (region - put.bytes + 1);
    put.seed = random();
    put.signal = static_cast<int>(random() % 8);
  }
  return puts;
}

// Uses the arena from `base` on.
absl::Status RunRandomTraffic(Transport& transport, uint64_t base, int rounds) {
  const int size = transport.size();
  const int self = transport.rank();
  const absl::Span<std::byte> arena = transport.arena().subspan(base);
  const uint64_t region = arena.size() / static_cast<uint64_t>(size);
  Bytes oracle(region * static_cast<uint64_t>(size));
  std::mt19937 random(static_cast<uint32_t>(self));
  for (int round = 0; round < rounds; ++round) {
    // Sources at odd addresses, alive until the flush.
    std::vector<Bytes> sources;
    std::vector<int> receivers(static_cast<size_t>(size));
    for (int i = 0; i < size; ++i) receivers[static_cast<size_t>(i)] = i;
    std::shuffle(receivers.begin(), receivers.end(), random);
    for (int receiver : receivers) {
      for (const RandomPut& put : PutsOf(round, self, receiver, region)) {
        Bytes& source = sources.emplace_back(put.bytes + 3);
        const Bytes pattern = Pattern(put.seed, put.bytes);
        std::copy(pattern.begin(), pattern.end(), source.begin() + 3);
        const uint64_t offset = base + static_cast<uint64_t>(self) * region + put.offset;
        CONTRACT_OK(transport.PutSignal(receiver, absl::MakeConstSpan(source).subspan(3), offset, put.signal));
      }
    }
    for (int sender = 0; sender < size; ++sender) {
      std::vector<uint64_t> expected(8);
      for (const RandomPut& put : PutsOf(round, sender, self, region)) {
        const Bytes pattern = Pattern(put.seed, put.bytes);
        std::copy(pattern.begin(), pattern.end(),
                  oracle.begin() + static_cast<int64_t>(static_cast<uint64_t>(sender) * region + put.offset));
        ++expected[static_cast<size_t>(put.signal)];
      }
      for (size_t signal = 0; signal < expected.size(); ++signal) {
        // In two parts: what is waited for is consumed, no more and no less.
        const uint64_t part = expected[signal] == 0 ? 0 : random() % (expected[signal] + 1);
        CONTRACT_OK(transport.WaitSignal(sender, static_cast<int>(signal), part, Soon()));
        CONTRACT_OK(transport.WaitSignal(sender, static_cast<int>(signal), expected[signal] - part, Soon()));
        CONTRACT_ERROR(transport.WaitSignal(sender, static_cast<int>(signal), 1, absl::InfinitePast()),
                       absl::StatusCode::kDeadlineExceeded, "0 of 1");
      }
    }
    CONTRACT_EXPECT(Equal(oracle, arena.subspan(0, oracle.size())));
    CONTRACT_OK(transport.Flush(Soon()));
    CONTRACT_OK(Barrier(transport));
  }
  return absl::OkStatus();
}

TEST_P(TransportContractTest, RandomTrafficIsWhatAnOracleSays) {
  // Beside the shared region, where all ranks write the same place. The region for each sender has an odd size.
  const uint64_t base = GetParam().shared_region.offset + GetParam().shared_region.bytes;
  for (int size : {1, 2, 4}) {
    RunWell(size, base + 4 * 400'003, [&](Transport& transport) { return RunRandomTraffic(transport, base, 15); });
  }
}

TEST_P(TransportContractTest, TheArenaStartsAsPagesOfZeros) {
  RunWell(2, 100'000, [](Transport& transport) -> absl::Status {
    CONTRACT_EXPECT(transport.size() == 2);
    CONTRACT_EXPECT(transport.signals() == 16);
    CONTRACT_EXPECT(transport.arena().size() >= 100'000);
    CONTRACT_EXPECT(reinterpret_cast<uintptr_t>(transport.arena().data()) % 4096 == 0);
    for (std::byte byte : transport.arena()) CONTRACT_EXPECT(byte == std::byte{0});
    return absl::OkStatus();
  });
}

TEST_P(TransportContractTest, DataIsThereBeforeItsSignal) {
  RunWell(2, 1 << 20, [](Transport& transport) -> absl::Status {
    const int peer = 1 - transport.rank();
    for (int i = 1; i <= 1500; ++i) {
      const size_t bytes = static_cast<size_t>(i % 7 == 0 ? 1 << 18 : i);
      const std::byte stamp{static_cast<unsigned char>(i % 251)};
      const Bytes source(bytes, stamp);
      if (transport.rank() == 0) {
        CONTRACT_OK(transport.PutSignal(peer, source, 5, 3));
        CONTRACT_OK(transport.WaitSignal(peer, 4, 1, Soon()));
      } else {
        CONTRACT_OK(transport.WaitSignal(peer, 3, 1, Soon()));
        CONTRACT_EXPECT(Equal(source, transport.arena().subspan(5, bytes)));
        CONTRACT_OK(transport.Signal(peer, 4));
      }
    }
    return absl::OkStatus();
  });
}

TEST_P(TransportContractTest, ASignalProvesAllEarlierPutsOfItsSender) {
  RunWell(2, 1 << 20, [](Transport& transport) -> absl::Status {
    const int peer = 1 - transport.rank();
    constexpr int kPuts = 100;
    for (int round = 0; round < 20; ++round) {
      const std::byte stamp{static_cast<unsigned char>(round + 1)};
      const Bytes source(10'000, stamp);
      if (transport.rank() == 0) {
        for (int i = 0; i < kPuts; ++i) CONTRACT_OK(transport.PutSignal(peer, source, static_cast<uint64_t>(i) * 10'000, i % 3));
        CONTRACT_OK(transport.Signal(peer, 5));
        CONTRACT_OK(transport.WaitSignal(peer, 6, 1, Soon()));
      } else {
        CONTRACT_OK(transport.WaitSignal(peer, 5, 1, Soon()));
        for (std::byte byte : transport.arena().subspan(0, kPuts * 10'000)) CONTRACT_EXPECT(byte == stamp);
        CONTRACT_OK(transport.WaitSignal(peer, 0, 34, Soon()));
        CONTRACT_OK(transport.WaitSignal(peer, 1, 33, Soon()));
        CONTRACT_OK(transport.WaitSignal(peer, 2, 33, Soon()));
        CONTRACT_OK(transport.Signal(peer, 6));
      }
    }
    return absl::OkStatus();
  });
}

TEST_P(TransportContractTest, ManySignalsAreCountedExactly) {
  RunWell(3, 4096, [](Transport& transport) -> absl::Status {
    constexpr int kRounds = 3000;
    for (int i = 0; i < kRounds; ++i) {
      for (int peer = 0; peer < transport.size(); ++peer) CONTRACT_OK(transport.Signal(peer, i % 5));
    }
    for (int peer = 0; peer < transport.size(); ++peer) {
      for (int signal = 0; signal < 5; ++signal) {
        CONTRACT_OK(transport.WaitSignal(peer, signal, kRounds / 5 - 1, Soon()));
        CONTRACT_OK(transport.WaitSignal(peer, signal, 1, Soon()));
        CONTRACT_ERROR(transport.WaitSignal(peer, signal, 1, absl::Now()), absl::StatusCode::kDeadlineExceeded, "0 of 1");
      }
    }
    return Barrier(transport);
  });
}

TEST_P(TransportContractTest, LargeUnalignedPutsArriveWhole) {
  constexpr size_t kBytes = (9 << 20) + 13;
  RunWell(2, 2 * kBytes, [](Transport& transport) -> absl::Status {
    const int peer = 1 - transport.rank();
    const Bytes mine = Pattern(static_cast<uint64_t>(transport.rank()), kBytes);
    const Bytes theirs = Pattern(static_cast<uint64_t>(peer), kBytes);
    // Both at once, so that neither waits for the other to read.
    const uint64_t offset = static_cast<uint64_t>(transport.rank()) * kBytes + 1 - static_cast<uint64_t>(transport.rank());
    const uint64_t their_offset = static_cast<uint64_t>(peer) * kBytes + 1 - static_cast<uint64_t>(peer);
    CONTRACT_OK(transport.PutSignal(peer, absl::MakeConstSpan(mine).subspan(1), offset, 0));
    CONTRACT_OK(transport.WaitSignal(peer, 0, 1, Soon()));
    CONTRACT_EXPECT(Equal(absl::MakeConstSpan(theirs).subspan(1), transport.arena().subspan(their_offset, kBytes - 1)));
    return transport.Flush(Soon());
  });
}

TEST_P(TransportContractTest, AfterAFlushTheSourceMayChange) {
  RunWell(2, 1 << 22, [](Transport& transport) -> absl::Status {
    const int peer = 1 - transport.rank();
    Bytes source(1 << 22);
    for (int i = 1; i <= 10; ++i) {
      std::fill(source.begin(), source.end(), std::byte(i));
      CONTRACT_OK(transport.PutSignal(peer, source, 0, 0));
      CONTRACT_OK(transport.Flush(Soon()));
      std::fill(source.begin(), source.end(), std::byte{255});
      CONTRACT_OK(transport.WaitSignal(peer, 0, 1, Soon()));
      for (std::byte byte : transport.arena().subspan(0, source.size())) CONTRACT_EXPECT(byte == std::byte(i));
      CONTRACT_OK(Barrier(transport));
    }
    return absl::OkStatus();
  });
}

TEST_P(TransportContractTest, PutsFromTheArenaItselfAndToTheOwnRank) {
  RunWell(2, 1 << 16, [](Transport& transport) -> absl::Status {
    const int self = transport.rank();
    const int peer = 1 - self;
    const Bytes pattern = Pattern(static_cast<uint64_t>(self) + 7, 1000);
    std::copy(pattern.begin(), pattern.end(), transport.arena().begin() + 32'000 + 1000 * self);
    const auto source = transport.arena().subspan(32'000 + 1000 * static_cast<size_t>(self), 1000);
    CONTRACT_OK(transport.PutSignal(self, source, 40'000 + 1000 * static_cast<uint64_t>(self), 1));
    CONTRACT_OK(transport.WaitSignal(self, 1, 1, Soon()));
    CONTRACT_EXPECT(Equal(pattern, transport.arena().subspan(40'000 + 1000 * static_cast<size_t>(self), 1000)));
    CONTRACT_OK(transport.PutSignal(peer, source, 48'000 + 1000 * static_cast<uint64_t>(self), 2));
    CONTRACT_OK(transport.WaitSignal(peer, 2, 1, Soon()));
    CONTRACT_EXPECT(Equal(Pattern(static_cast<uint64_t>(peer) + 7, 1000),
                          transport.arena().subspan(48'000 + 1000 * static_cast<size_t>(peer), 1000)));
    return Barrier(transport);
  });
}

TEST_P(TransportContractTest, AMulticastReachesAllItsPeersAndNoOther) {
  RunWell(4, 1 << 16, [](Transport& transport) -> absl::Status {
    const Bytes pattern = Pattern(99, 10'001);
    for (int round = 0; round < 50; ++round) {
      const int sender = round % 4;
      const std::vector<int> peers = {sender, (sender + 1) % 4, (sender + 3) % 4};
      const uint64_t offset = static_cast<uint64_t>(round) * 1001;
      if (transport.rank() == sender) CONTRACT_OK(transport.Multicast(peers, pattern, offset, 1));
      if (transport.rank() == (sender + 2) % 4) {
        CONTRACT_ERROR(transport.WaitSignal(sender, 1, 1, absl::InfinitePast()), absl::StatusCode::kDeadlineExceeded, "0 of 1");
      } else {
        CONTRACT_OK(transport.WaitSignal(sender, 1, 1, Soon()));
        CONTRACT_EXPECT(Equal(pattern, transport.arena().subspan(offset, pattern.size())));
      }
      CONTRACT_OK(Barrier(transport));
    }
    return absl::OkStatus();
  });
}

TEST_P(TransportContractTest, ThreadsMayCallAtOnce) {
  constexpr size_t kThreads = 4;
  constexpr size_t kSlot = 20'000;
  RunWell(2, 2 * kThreads * kSlot, [](Transport& transport) -> absl::Status {
    const int peer = 1 - transport.rank();
    std::vector<absl::Status> results(kThreads);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        results[t] = [&]() -> absl::Status {
          const int signal = static_cast<int>(t);
          const uint64_t offset = t * kSlot;
          for (uint64_t i = 0; i < 100; ++i) {
            // The receiver's seed and the sender's are the same.
            const Bytes source = Pattern(t * 1000 + i, 1 + (i * 199 + t) % kSlot);
            CONTRACT_OK(transport.PutSignal(peer, source, offset, signal));
            CONTRACT_OK(transport.WaitSignal(peer, signal, 1, Soon()));
            CONTRACT_EXPECT(Equal(source, transport.arena().subspan(offset, source.size())));
            CONTRACT_OK(transport.Flush(Soon()));
            // The slot is free again.
            CONTRACT_OK(transport.Signal(peer, signal + 4));
            CONTRACT_OK(transport.WaitSignal(peer, signal + 4, 1, Soon()));
          }
          return absl::OkStatus();
        }();
      });
    }
    for (auto& thread : threads) thread.join();
    for (const absl::Status& result : results) CONTRACT_OK(result);
    return Barrier(transport);
  });
}

TEST_P(TransportContractTest, LocalArenasCanBeUsedDirectly) {
  RunWell(3, 1 << 16, [](Transport& transport) -> absl::Status {
    const int self = transport.rank();
    const absl::Span<const int> local = transport.LocalPeers();
    CONTRACT_EXPECT(std::is_sorted(local.begin(), local.end()));
    CONTRACT_EXPECT(std::find(local.begin(), local.end(), self) != local.end());
    CONTRACT_EXPECT(transport.PeerArena(self).data() == transport.arena().data());
    CONTRACT_EXPECT(transport.PeerArena(-1).empty() && transport.PeerArena(3).empty());
    // The places differ by sender, so that a shared region does not matter.
    for (int peer : local) {
      CONTRACT_EXPECT(transport.PeerArena(peer).size() == transport.arena().size());
      transport.PeerArena(peer)[10'000 + static_cast<size_t>(self)] = std::byte(self + 1);
    }
    for (int peer : local) CONTRACT_OK(transport.Signal(peer, 0));
    for (int peer : local) {
      CONTRACT_OK(transport.WaitSignal(peer, 0, 1, Soon()));
      CONTRACT_EXPECT(transport.arena()[10'000 + static_cast<size_t>(peer)] == std::byte(peer + 1));
      CONTRACT_EXPECT(transport.PeerArena(peer)[10'000 + static_cast<size_t>(peer)] == std::byte(peer + 1));
    }
    for (int peer = 0; peer < transport.size(); ++peer) {
      if (std::find(local.begin(), local.end(), peer) == local.end()) CONTRACT_EXPECT(transport.PeerArena(peer).empty());
    }
    return Barrier(transport);
  });
}

}  // namespace
}  // namespace tidetape::collectives
