// Collectives over NCCL's stand-in: the same bytes, by the same schedules, as over shared memory; which of NCCL's calls they make;
// and what becomes of a group when NCCL fails.
#include "collectives/transports/nccl/nccl_transport.h"

#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/executor.h"
#include "collectives/testing/nccl_standin/standin_library.h"
#include "collectives/testing/rank_checks.h"
#include "collectives/testing/rank_processes.h"
#include "collectives/testing/rank_traffic.h"
#include "collectives/testing/sound.h"
#include "collectives/transports/rendezvous/file_store.h"
#include "collectives/transports/shm/shm_transport.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidetape::collectives {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<std::unique_ptr<Transport>> JoinShm(Store& store, const GroupOptions& options) {
  return ShmTransport::Join(store, options, {});
}

GroupOptions Ranks(int size, int rank, uint64_t arena_bytes, int signals) {
  GroupOptions options;
  options.size = size;
  options.rank = rank;
  options.arena_bytes = arena_bytes;
  options.signals = signals;
  options.join_timeout = absl::Seconds(60);
  return options;
}

absl::StatusOr<std::unique_ptr<NcclTransport>> JoinNccl(Store& store, const GroupOptions& options, const StandinLibrary& standin,
                                                        NcclOptions nccl = {}) {
  nccl.library = StandinLibrary::Path();
  return NcclTransport::Join(store, options, nccl, standin.device(), JoinShm);
}

// Two nodes, and whatever else tests want.
StandinOptions TwoNodes(int size) {
  StandinOptions options;
  options.ranks_per_node = size / 2;
  return options;
}

std::vector<RankOutcome> RunAll(int size, const std::function<absl::Status(int rank, Store& store)>& body) {
  const TemporaryFolder folder;
  return RunRanks(size, absl::Seconds(100), [&](int rank) {
    FileStore store(folder.path());
    return body(rank, store);
  });
}

void ExpectAllWell(const std::vector<RankOutcome>& outcomes) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank)
    EXPECT_TRUE(outcomes[rank].status.ok()) << "rank " << rank << ": " << outcomes[rank];
}

// --- Collectives -------------------------------------------------------------------------------------------------------------

struct Case {
  explicit Case(int size) : layout(*Layout::Create(Model(size, size / 2))) {
    options.chunk_bytes = 64;
    options.staging_slots = 2;
    options.divide_factor = size;
  }
  Layout layout;
  ScheduleOptions options;
};

// Gathers, then reduces, every unit; returns all that is then in the arena and in the shards, and the schedules' hashes.
absl::Status RunCollectives(const Case& it, Transport& transport, const std::string& result_file) {
  const int rank = transport.rank();
  std::ofstream result(result_file, std::ios::binary);
  Executor executor(transport, {absl::Seconds(60)});
  for (int32_t unit = 0; unit < static_cast<int32_t>(it.layout.units().size()); ++unit) {
    const Group group = GroupsOf(it.layout.units()[unit].mesh)[rank];
    const UnitPlace& place = it.layout.units()[unit];
    const auto gather = AllGatherSchedule(it.layout, unit, group, it.options);
    CONTRACT_OK(gather.status());
    // The whole slot by rank: only the own shard's bytes may survive on the others.
    const Region& slot = it.layout.slots()[place.slot];
    const Bytes own = Pattern(static_cast<uint64_t>(rank * 100 + unit), static_cast<size_t>(slot.bytes));
    // Before anyone is told that the slot is ready.
    std::copy(own.begin(), own.end(), transport.arena().begin() + slot.offset);
    CONTRACT_OK(executor.Run(*gather, {}, 1));
    CONTRACT_OK(transport.Flush(Soon()));
    result.write(reinterpret_cast<const char*>(transport.arena().data()) + slot.offset, slot.bytes);

    const auto reduce = ReduceScatterSchedule(it.layout, unit, group, it.options);
    CONTRACT_OK(reduce.status());
    const Unit& spec = it.layout.spec().units[unit];
    std::vector<Bytes> gradients;
    std::vector<std::vector<float>> shards;
    ReduceBuffers buffers;
    for (size_t p = 0; p < spec.parameters.size(); ++p) {
      const ShardGeometry& geometry = place.parameters[p].geometry;
      // Exponents near one: sums stay finite.
      Bytes& gradient =
          gradients.emplace_back(Pattern(static_cast<uint64_t>(rank * 1000 + unit * 10) + p,
                                         static_cast<size_t>(geometry.elements() * DTypeBytes(spec.parameters[p].gradient_dtype))));
      const size_t size = static_cast<size_t>(DTypeBytes(spec.parameters[p].gradient_dtype));
      for (size_t i = size - 1; i < gradient.size(); i += size) gradient[i] = (gradient[i] & std::byte{0x80}) | std::byte{0x3f};
      shards.emplace_back(static_cast<size_t>(geometry.shard_elements(group.self)), 0.5f);
    }
    for (size_t p = 0; p < spec.parameters.size(); ++p) {
      buffers.gradients.push_back(gradients[p]);
      buffers.outputs.push_back({absl::MakeSpan(shards[p]), true});
    }
    CONTRACT_OK(executor.Run(*reduce, buffers, 1));
    for (const auto& shard : shards)
      result.write(reinterpret_cast<const char*>(shard.data()), static_cast<int64_t>(shard.size() * sizeof(float)));
    for (uint64_t hash : {gather->hash(), reduce->hash()}) result.write(reinterpret_cast<const char*>(&hash), sizeof(hash));
  }
  CONTRACT_OK(transport.Flush(Soon()));
  return absl::OkStatus();
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class CollectivesTest : public ::testing::TestWithParam<int> {};

TEST_P(CollectivesTest, GiveTheSameBytesByTheSameVerifiedSchedulesAsSharedMemory) {
  const int size = GetParam();
  const Case it(size);
  for (CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
    for (int32_t unit = 0; unit < static_cast<int32_t>(it.layout.units().size()); ++unit) {
      const auto run = MakeRun(it.layout, kind, unit, it.options);
      ASSERT_TRUE(run.ok()) << run.status();
      const absl::Status status = VerifyCollective(it.layout, *run);
      ASSERT_TRUE(status.ok()) << status;
    }
  }
  const TemporaryFolder results;
  const auto file = [&](const char* transport, int rank) { return absl::StrCat(results.path(), "/", transport, rank); };
  const uint64_t arena_bytes = static_cast<uint64_t>(it.layout.arena_bytes());
  ExpectAllWell(RunAll(size, [&](int rank, Store& store) -> absl::Status {
    auto transport = JoinShm(store, Ranks(size, rank, arena_bytes, it.layout.signals()));
    CONTRACT_OK(transport.status());
    return RunCollectives(it, **transport, file("shm", rank));
  }));
  ExpectAllWell(RunAll(size, [&](int rank, Store& store) -> absl::Status {
    const StandinLibrary standin(TwoNodes(size));
    auto transport = JoinNccl(store, Ranks(size, rank, arena_bytes, it.layout.signals()), standin);
    CONTRACT_OK(transport.status());
    CONTRACT_OK(RunCollectives(it, **transport, file("nccl", rank)));
    // One arena, one window; no SM; only the other node by NCCL's puts.
    CONTRACT_EXPECT(standin.Count("ncclMemAlloc") == 1);
    CONTRACT_EXPECT(standin.Count("ncclCommWindowRegister") == 1);
    CONTRACT_EXPECT(
        standin.Count(absl::StrCat("ncclCommInitRankConfig ranks=", size, " rank=", rank, " blocking=0 cta_policy=2")) == 1);
    CONTRACT_EXPECT(standin.Count("ncclPutSignal") > 0);
    for (int peer : (*transport)->LocalPeers()) CONTRACT_EXPECT(standin.Count(absl::StrCat("ncclPutSignal peer=", peer, " ")) == 0);
    CONTRACT_EXPECT(static_cast<int>((*transport)->LocalPeers().size()) == size / 2);
    return absl::OkStatus();
  }));
  for (int rank = 0; rank < size; ++rank) {
    const std::string expected = ReadFile(file("shm", rank));
    EXPECT_FALSE(expected.empty());
    EXPECT_EQ(ReadFile(file("nccl", rank)), expected) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CollectivesTest, ::testing::Values(2, 4, 8));

// --- Calls -------------------------------------------------------------------------------------------------------------------

TEST(NcclTransportTest, AMulticastIsOneCopyWhereItIsSmallAndWanted) {
  ExpectAllWell(RunAll(4, [](int rank, Store& store) -> absl::Status {
    StandinOptions options;
    options.ranks_per_node = 4;
    const StandinLibrary standin(options);
    NcclOptions nccl;
    nccl.multicast_most_bytes = 4096;
    auto transport = JoinNccl(store, Ranks(4, rank, 1 << 16, 16), standin, nccl);
    CONTRACT_OK(transport.status());
    NcclTransport& to = **transport;
    const absl::Span<std::byte> arena = to.arena();
    const std::vector<int> others = {1, 2, 3}, all = {0, 1, 2, 3}, some = {1, 2};
    const auto multicast = [&](const std::vector<int>& peers, uint64_t source, uint64_t bytes, uint64_t offset,
                               int expected) -> absl::Status {
      if (rank == 0) {
        const int before = standin.Count("multicast");
        const Bytes pattern = Pattern(bytes + offset, bytes);
        std::copy(pattern.begin(), pattern.end(), arena.begin() + static_cast<int64_t>(source));
        CONTRACT_OK(to.Multicast(peers, arena.subspan(source, bytes), offset, 1));
        CONTRACT_OK(to.Flush(Soon()));
        CONTRACT_EXPECT(standin.Count("multicast") - before == expected);
      }
      if (std::find(peers.begin(), peers.end(), rank) != peers.end()) {
        CONTRACT_OK(to.WaitSignal(0, 1, 1, Soon()));
        CONTRACT_EXPECT(Equal(Pattern(bytes + offset, bytes), arena.subspan(offset, bytes)));
      } else if (rank != 0) {
        for (std::byte byte : arena.subspan(offset, bytes)) CONTRACT_EXPECT(byte == std::byte{0});
      }
      return Barrier(to);
    };
    CONTRACT_OK(multicast(others, 0, 4096, 0, 1));            // the own place has the bytes already
    CONTRACT_OK(multicast(all, 40'960, 1024, 8192, 1));       // the own rank wants them, too
    CONTRACT_OK(multicast(others, 40'960, 1024, 12'288, 0));  // the own place must stay as it is
    CONTRACT_OK(multicast(some, 16'384, 1024, 16'384, 0));    // rank 3 must get none
    CONTRACT_OK(multicast(others, 20'480, 4112, 20'480, 0));  // too large
    CONTRACT_OK(multicast(others, 28'672, 1000, 28'672, 0));  // no multiple of 16
    return absl::OkStatus();
  }));
}

TEST(NcclTransportTest, NoMorePutsAreUnderWayThanNcclAllows) {
  ExpectAllWell(RunAll(2, [](int rank, Store& store) -> absl::Status {
    const StandinLibrary standin(TwoNodes(2));
    auto transport = JoinNccl(store, Ranks(2, rank, 1 << 20, 16), standin);
    CONTRACT_OK(transport.status());
    // The stand-in refuses the 257th.
    const int puts = 2000;
    for (int i = 0; i < puts; ++i)
      CONTRACT_OK((*transport)->PutSignal(1 - rank, (*transport)->arena().subspan(0, 1 << 16), 1 << 17, 2));
    CONTRACT_OK((*transport)->WaitSignal(1 - rank, 2, puts, Soon()));
    CONTRACT_EXPECT(standin.Count("ncclPutSignal") == puts);
    return Barrier(**transport);
  }));
}

TEST(NcclTransportTest, PutsFromElsewhereGoThroughTheOutboxInParts) {
  ExpectAllWell(RunAll(2, [](int rank, Store& store) -> absl::Status {
    const StandinLibrary standin(TwoNodes(2));
    NcclOptions nccl;
    nccl.outbox_bytes = 4096;
    auto transport = JoinNccl(store, Ranks(2, rank, 1 << 16, 16), standin, nccl);
    CONTRACT_OK(transport.status());
    const Bytes mine = Pattern(static_cast<uint64_t>(rank), 10'001), theirs = Pattern(static_cast<uint64_t>(1 - rank), 10'001);
    CONTRACT_OK((*transport)->PutSignal(1 - rank, mine, 77, 3));
    // Parts raise no signal but the last.
    CONTRACT_OK((*transport)->WaitSignal(1 - rank, 3, 1, Soon()));
    CONTRACT_EXPECT(Equal(theirs, (*transport)->arena().subspan(77, theirs.size())));
    CONTRACT_EXPECT(standin.Count("ncclPutSignal") == 3);
    CONTRACT_ERROR((*transport)->WaitSignal(1 - rank, 3, 1, absl::Now() + absl::Milliseconds(100)),
                   absl::StatusCode::kDeadlineExceeded, "0 of 1");
    CONTRACT_OK((*transport)->Flush(Soon()));
    return Barrier(**transport);
  }));
}

// --- Failures ----------------------------------------------------------------------------------------------------------------

// Rank 1 of four fails; what each rank's Join, or then its traffic, comes to.
std::vector<RankOutcome> WithFailure(StandinFailure failure) {
  return RunAll(4, [=](int rank, Store& store) -> absl::Status {
    StandinOptions options = TwoNodes(4);
    if (rank == 1) options.failure = failure;
    options.after_puts = 5;
    const StandinLibrary standin(options);
    auto transport = JoinNccl(store, Ranks(4, rank, 1 << 16, 16), standin);
    if (!transport.ok()) return transport.status();
    const int across = (rank + 2) % 4;
    for (int i = 0; i < 1000; ++i) {
      absl::Status status = (*transport)->PutSignal(across, (*transport)->arena().subspan(0, 64), 1024, 1);
      if (status.ok()) status = (*transport)->WaitSignal(across, 1, 1, Soon());
      for (int peer = 0; peer < 4 && status.ok(); ++peer) status = (*transport)->Signal(peer, 2);
      for (int peer = 0; peer < 4 && status.ok(); ++peer) status = (*transport)->WaitSignal(peer, 2, 1, Soon());
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  });
}

struct FailureCase {
  std::string name;
  StandinFailure failure;
  absl::StatusCode code;     // on rank 1
  std::string text, others;  // on rank 1 and on the others; a rank whose group fails leaves it, and so the next one hears of it
};

std::ostream& operator<<(std::ostream& out, const FailureCase& it) { return out << it.name; }

class FailureTest : public ::testing::TestWithParam<FailureCase> {};

TEST_P(FailureTest, EndsOnAllRanksAndSaysWhy) {
  const FailureCase& it = GetParam();
  const std::vector<RankOutcome> outcomes = WithFailure(it.failure);
  EXPECT_EQ(outcomes[1].status.code(), it.code) << outcomes[1];
  EXPECT_THAT(std::string(outcomes[1].status.message()), HasSubstr(it.text));
  for (size_t rank : {0, 2, 3}) {
    EXPECT_EQ(outcomes[rank].status.code(), absl::StatusCode::kUnavailable) << "rank " << rank << ": " << outcomes[rank];
    EXPECT_THAT(std::string(outcomes[rank].status.message()), HasSubstr(it.others)) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Injected, FailureTest,
    ::testing::Values(FailureCase{"OldVersion", StandinFailure::kOldVersion, absl::StatusCode::kFailedPrecondition,
                                  "is NCCL 2.30.7; NCCL 2.31.2 or newer is needed", "rank 1 cannot take part: "},
                      FailureCase{"NoMemory", StandinFailure::kNoMemory, absl::StatusCode::kResourceExhausted,
                                  "bytes for the arena: ncclMemAlloc", "rank 1 cannot take part: RESOURCE_EXHAUSTED"},
                      FailureCase{"NullWindow", StandinFailure::kNullWindow, absl::StatusCode::kFailedPrecondition,
                                  "succeeded and gave no window", "rank 1 cannot take part: FAILED_PRECONDITION"},
                      FailureCase{"AsyncError", StandinFailure::kAsyncError, absl::StatusCode::kUnavailable,
                                  "remote process exited or there was a network error", " has left the group"},
                      FailureCase{"Aborted", StandinFailure::kAborted, absl::StatusCode::kUnavailable,
                                  "ncclPutSignal: NCCL says 'invalid usage'", " has left the group"}),
    [](const auto& info) { return info.param.name; });

TEST(NcclTransportTest, ADifferentArenaKeepsTheGroupFromForming) {
  const auto outcomes = RunAll(2, [](int rank, Store& store) -> absl::Status {
    const StandinLibrary standin(TwoNodes(2));
    return JoinNccl(store, Ranks(2, rank, rank == 1 ? 8192 : 4096, 16), standin).status();
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kFailedPrecondition) << outcome;
    EXPECT_THAT(std::string(outcome.status.message()),
                AllOf(HasSubstr("rank 1 has an arena of 8192+"), HasSubstr("rank 0 has 4096+")));
  }
}

TEST(NcclLibraryTest, SaysWhatIsNeededWhereThereIsNone) {
  const auto library = NcclLibrary::Load("/nowhere/libnccl.so.2");
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(library.status().message()),
      AllOf(HasSubstr("/nowhere/libnccl.so.2"), HasSubstr("NCCL 2.31.2 or newer is needed"), HasSubstr("nvidia-nccl-cu13")));
}

TEST(NcclLibraryTest, ReadsVersionsAsNcclWritesThem) {
  EXPECT_EQ(NcclVersionText(23102), "2.31.2");
  EXPECT_EQ(NcclVersionText(23007), "2.30.7");
  EXPECT_EQ(NcclVersionText(2708), "2.7.8");
}

}  // namespace
}  // namespace tidetape::collectives
