// Ranks as threads that switch their pacing, or try to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "agent/fsdp/data_plane.h"
#include "collectives/testing/thread_transport.h"

namespace tidetape::agent {
namespace {

using collectives::DType;
using collectives::Group;
using collectives::Layout;
using collectives::LayoutSpec;
using collectives::RailAlgorithm;
using collectives::ReduceBuffers;
using collectives::ThreadGroup;
using ::testing::HasSubstr;

constexpr int32_t kUnits = 3;

PacingCandidate Candidate(int64_t generation, int64_t chunk_bytes, RailAlgorithm rail = RailAlgorithm::kDoubling) {
  PacingCandidate candidate;
  candidate.generation = generation;
  candidate.schedule.chunk_bytes = chunk_bytes;
  candidate.schedule.rail = rail;
  return candidate;
}

// Where rows of a reduction wait.
enum class Rows { kBeside, kInSlot };

// `ranks` on hosts of `per_host`; three units that take turns on two slots, and float32 rows, unevenly sharded: of 4 numbers, or of
// as many as it takes to stage rows in the slot.
class Ranks {
 public:
  // The pacing that each rank starts with; one entry stands for all.
  Ranks(int32_t ranks, int32_t per_host, const std::vector<PacingCandidate>& start, Rows rows = Rows::kBeside,
        absl::Duration wait_limit = absl::Seconds(20))
      : ranks_(ranks), rows_(3 * ranks - 1), width_(rows == Rows::kInSlot ? 1024 : 4), in_slot_(rows == Rows::kInSlot) {
    LayoutSpec spec;
    spec.meshes = {{"all", ranks, 1, per_host}};
    for (const char* name : {"a", "b", "c"}) {
      spec.units.push_back(
          {name,
           "all",
           {{.name = "weight", .shape = {rows_, width_}, .dtype = DType::kFloat32, .gradient_dtype = DType::kFloat32}}});
    }
    spec.options.host_ranks = per_host;
    spec.options.staging_bytes = 4096;
    spec.options.reuse_slots = spec.options.spare_staging = in_slot_;
    const Layout layout = *Layout::Create(spec);
    ThreadGroup::Options options;
    options.ranks = ranks;
    options.host_ranks = per_host;
    options.signals = DataPlane::Signals(layout);
    options.arena_bytes = static_cast<int64_t>(DataPlane::ArenaBytes(layout, ranks) + 4095) / 4096 * 4096;
    options.shared_bytes = layout.shared_region().bytes;
    options.laziness = 0.1;
    group_ = std::make_unique<ThreadGroup>(options);
    std::vector<int32_t> all;
    for (int32_t rank = 0; rank < ranks; ++rank) all.push_back(rank);
    for (int32_t rank = 0; rank < ranks; ++rank) {
      DataPlane::Options limits;
      limits.executor.wait_limit = wait_limit;
      limits.pacing = start[start.size() == 1 ? 0 : rank];
      const Group group = {all, per_host, rank, {}, 0};
      planes_.push_back(
          *DataPlane::Create(*Layout::Create(spec), std::vector<Group>(kUnits, group), group_->MakeTransport(rank), limits));
    }
  }

  DataPlane& plane(int32_t rank) { return *planes_[rank]; }

  void OnAll(const std::function<void(int32_t)>& function) {
    std::vector<std::thread> others;
    for (int32_t rank = 1; rank < ranks_; ++rank) others.emplace_back([&function, rank] { function(rank); });
    function(0);
    for (std::thread& other : others) other.join();
  }

  absl::Status Begin(int32_t rank, int32_t unit, float base, bool reduction_next = false) {
    DataPlane& plane = *planes_[rank];
    if (absl::Status status = plane.Admit(unit, reduction_next, 0); !status.ok()) return status;
    for (int64_t i = width_ * 3 * rank; i < width_ * std::min<int64_t>(3 * rank + 3, rows_); ++i) {
      Place(rank, unit)[i] = base + static_cast<float>(i);
    }
    return plane.Send(unit, 0);
  }

  absl::Status End(int32_t rank, int32_t unit, float base) {
    if (absl::Status status = planes_[rank]->Finish(unit, 0); !status.ok()) return status;
    for (int64_t i = 0; i < width_ * rows_; ++i) {
      if (Place(rank, unit)[i] != base + static_cast<float>(i)) return absl::DataLossError("not what was gathered");
    }
    return absl::OkStatus();
  }

  absl::Status Gather(int32_t rank, int32_t unit, float base, bool reduction_next = false) {
    if (absl::Status status = Begin(rank, unit, base, reduction_next); !status.ok()) return status;
    return End(rank, unit, base);
  }

  absl::StatusOr<GradientNotice> Agree(int32_t rank, int32_t unit) {
    return planes_[rank]->Agree({unit, false, 1, false, {true}}, 0);
  }

  absl::Status Reduce(int32_t rank, int32_t unit) {
    const auto agreed = Agree(rank, unit);
    return agreed.ok() ? ReduceAgreed(rank, *agreed) : agreed.status();
  }

  absl::Status ReduceAgreed(int32_t rank, const GradientNotice& agreed) {
    std::vector<float> gradient(width_ * rows_, static_cast<float>(rank + 1));
    std::vector<float> shard(width_ * (std::min<int64_t>(3 * rank + 3, rows_) - 3 * rank));
    ReduceBuffers buffers;
    buffers.gradients = {{reinterpret_cast<const std::byte*>(gradient.data()), gradient.size() * sizeof(float)}};
    buffers.outputs = {{absl::MakeSpan(shard), false}};
    if (absl::Status status = planes_[rank]->ReduceGradients(agreed, buffers, 0); !status.ok()) return status;
    if (absl::Status status = planes_[rank]->FinishReduction(agreed, buffers, 0); !status.ok()) return status;
    for (const float sum : shard) {
      if (sum != static_cast<float>(ranks_ * (ranks_ + 1) / 2)) return absl::DataLossError("not the sum of the gradients");
    }
    return absl::OkStatus();
  }

  // One step as FSDP2 runs it: in backward, the next unit is on its way while one is reduced.
  absl::Status Step(int32_t rank, float base) {
    absl::Status status;
    for (int32_t unit = 0; status.ok() && unit < kUnits; ++unit) {
      status = Gather(rank, unit, base + static_cast<float>(unit));
      planes_[rank]->Release(unit);
    }
    if (status.ok()) status = Begin(rank, kUnits - 1, base, true);
    for (int32_t unit = kUnits - 1; status.ok() && unit >= 0; --unit) {
      status = End(rank, unit, base);
      if (status.ok() && unit > 0) status = Begin(rank, unit - 1, base, true);
      planes_[rank]->Release(unit);
      if (status.ok()) status = Reduce(rank, unit);
    }
    return status;
  }

  int64_t Generation(int32_t rank) { return planes_[rank]->pacing().generation; }

 private:
  float* Place(int32_t rank, int32_t unit) {
    return reinterpret_cast<float*>(planes_[rank]->arena().data() + planes_[rank]->layout().units()[unit].parameters[0].offset);
  }

  const int32_t ranks_;
  const int64_t rows_, width_;
  const bool in_slot_;
  std::unique_ptr<ThreadGroup> group_;
  std::vector<std::unique_ptr<DataPlane>> planes_;
};

TEST(DataPlanePacingTest, AllSwitchAtTheNextReductionOnceAllHaveArmed) {
  Ranks ranks(2, 1, {Candidate(0, 1 << 20)});
  ranks.OnAll([&](int32_t rank) {
    ASSERT_TRUE(ranks.Step(rank, 1).ok());
    EXPECT_EQ(ranks.Generation(rank), 0);
    ASSERT_TRUE(ranks.plane(rank).Arm(Candidate(7, 16)).ok());
    ASSERT_TRUE(ranks.Gather(rank, 0, 2).ok());
    ranks.plane(rank).Release(0);
    EXPECT_EQ(ranks.Generation(rank), 0);  // nobody has reduced yet
    ASSERT_TRUE(ranks.Reduce(rank, 0).ok());
    EXPECT_EQ(ranks.Generation(rank), 7);
    EXPECT_EQ(ranks.plane(rank).pacing().schedule.chunk_bytes, 16);
    ASSERT_TRUE(ranks.Step(rank, 3).ok());
  });
}

TEST(DataPlanePacingTest, OneRankThatHasNotArmedHoldsAll) {
  Ranks ranks(4, 2, {Candidate(0, 1 << 20)});
  ranks.OnAll([&](int32_t rank) {
    if (rank != 2) {
      ASSERT_TRUE(ranks.plane(rank).Arm(Candidate(7, 16)).ok());
    }
    for (int step = 0; step < 3; ++step) ASSERT_TRUE(ranks.Step(rank, 1).ok());
    EXPECT_EQ(ranks.Generation(rank), 0);
    if (rank == 2) {
      ASSERT_TRUE(ranks.plane(rank).Arm(Candidate(7, 16)).ok());
    }
    ASSERT_TRUE(ranks.Step(rank, 1).ok());
    EXPECT_EQ(ranks.Generation(rank), 7);
  });
}

TEST(DataPlanePacingTest, OneNumberForTwoPacingsSwitchesNobody) {
  Ranks ranks(3, 1, {Candidate(0, 1 << 20)});
  ranks.OnAll([&](int32_t rank) {
    ASSERT_TRUE(ranks.plane(rank).Arm(Candidate(7, rank == 1 ? 32 : 16)).ok());
    ASSERT_TRUE(ranks.Step(rank, 1).ok());
    EXPECT_EQ(ranks.Generation(rank), 0);
  });
}

TEST(DataPlanePacingTest, WhatNoScheduleCanBeMadeOfIsNotArmed) {
  Ranks ranks(2, 1, {Candidate(3, 1 << 20)});
  EXPECT_THAT(ranks.plane(0).Arm(Candidate(4, 1)).message(), HasSubstr("chunk_bytes is 1"));
  EXPECT_THAT(ranks.plane(0).Arm(Candidate(3, 64)).message(), HasSubstr("pacing generation 3 is not above 3"));
}

// In the notices of a unit whose rows are to wait in its slot: they do, under the new pacing, and nobody is told that the slot is
// free before they have.
TEST(DataPlanePacingTest, ASwitchLeavesTheSlotToTheRowsThatWaitThere) {
  for (const int32_t per_host : {1, 2}) {
    Ranks ranks(2, per_host, {Candidate(0, 1 << 20)}, Rows::kInSlot);
    ranks.OnAll([&](int32_t rank) {
      for (int64_t round = 1; round < 20; ++round) {
        ASSERT_TRUE(ranks.plane(rank).Arm(Candidate(round, 512 << round % 3)).ok());
        ASSERT_TRUE(ranks.Gather(rank, 0, 1, true).ok());
        ranks.plane(rank).Release(0);
        const auto agreed = ranks.Agree(rank, 0);
        ASSERT_TRUE(agreed.ok()) << agreed.status();
        EXPECT_EQ(ranks.Generation(rank), round);
        EXPECT_TRUE(agreed->slot_vacated);
        absl::Status status = ranks.ReduceAgreed(rank, *agreed);
        ASSERT_TRUE(status.ok()) << status;
        status = ranks.Gather(rank, 2, 2);  // of the same slot
        ASSERT_TRUE(status.ok()) << status;
        ranks.plane(rank).Release(2);
      }
    });
  }
  // Who wants the slot meanwhile waits in vain.
  Ranks ranks(2, 2, {Candidate(0, 1 << 20)}, Rows::kInSlot, absl::Milliseconds(500));
  ranks.OnAll([&](int32_t rank) {
    ASSERT_TRUE(ranks.plane(rank).Arm(Candidate(1, 1024)).ok());
    ASSERT_TRUE(ranks.Gather(rank, 0, 1, true).ok());
    ranks.plane(rank).Release(0);
    ASSERT_TRUE(ranks.Agree(rank, 0).ok());
    EXPECT_EQ(ranks.Generation(rank), 1);
  });
  EXPECT_EQ(ranks.plane(0).Admit(2, false, 0).code(), absl::StatusCode::kDeadlineExceeded);
}

// A switch takes back the words that slots are free. Here one rank has said one that the other has not, so it would wait for it.
TEST(DataPlanePacingTest, RanksThatHaveToldDifferentSlotsFreeSwitchLater) {
  Ranks ranks(2, 2, {Candidate(0, 1 << 20)}, Rows::kInSlot);
  ranks.OnAll([&](int32_t rank) {
    ASSERT_TRUE(ranks.plane(rank).Arm(Candidate(7, 1024)).ok());
    for (const bool alike : {false, true}) {
      ASSERT_TRUE(ranks.Gather(rank, 0, 1, alike || rank == 0).ok());
      ranks.plane(rank).Release(0);
      const auto agreed = ranks.Agree(rank, 0);
      ASSERT_TRUE(agreed.ok()) << agreed.status();
      EXPECT_EQ(agreed->slot_vacated, alike);
      EXPECT_EQ(ranks.Generation(rank), alike ? 7 : 0);
      const absl::Status status = ranks.ReduceAgreed(rank, *agreed);
      ASSERT_TRUE(status.ok()) << status;
    }
    ASSERT_TRUE(ranks.Step(rank, 3).ok());
  });
}

// Tensors may go, on any thread, while the ranks agree: that slot is told free when they have agreed.
TEST(DataPlanePacingTest, ASlotReleasedWhileRanksAgreeIsToldFreeAfterwards) {
  Ranks ranks(2, 2, {Candidate(0, 1 << 20)});
  ranks.OnAll([&](int32_t rank) {
    ASSERT_TRUE(ranks.plane(rank).Arm(Candidate(7, 16)).ok());
    ASSERT_TRUE(ranks.Gather(rank, 1, 1).ok());
  });
  std::thread first([&] {
    const absl::Status status = ranks.Reduce(0, 0);
    EXPECT_TRUE(status.ok()) << status;
  });
  absl::SleepFor(absl::Milliseconds(100));  // until its notice is sent
  ranks.plane(0).Release(1);
  const absl::Status status = ranks.Reduce(1, 0);
  EXPECT_TRUE(status.ok()) << status;
  first.join();
  EXPECT_EQ(ranks.Generation(0), ranks.Generation(1));
  ranks.plane(1).Release(1);
  ranks.OnAll([&](int32_t rank) {
    const absl::Status step = ranks.Step(rank, 2);
    EXPECT_TRUE(step.ok()) << step;
  });
}

// Every rank arms what it has heard of whenever it likes; chunks, algorithm and so the words that slots are free change. Nobody
// waits for what does not come, and after each step all are at the same generation.
class PacingAtAnyTimeTest : public testing::TestWithParam<Rows> {};

TEST_P(PacingAtAnyTimeTest, ArmedByAnyRankTheyNeverSplit) {
  const bool in_slot = GetParam() == Rows::kInSlot;
  const std::vector<std::pair<int32_t, int32_t>> sizes = {{4, 1}, {4, 2}, {3, 1}, {4, 4}};
  for (const auto& [size, per_host] : sizes) {
    constexpr int kSteps = 60;
    Ranks ranks(size, per_host, {Candidate(0, 1 << 20)}, GetParam());
    std::vector<std::vector<int64_t>> in_force(size);
    ranks.OnAll([&, size = size](int32_t rank) {
      std::mt19937 random(static_cast<uint32_t>(1000 * size + rank));
      for (int step = 0; step < kSteps; ++step) {
        // A new generation every three steps; a rank that is late may skip one.
        const int64_t newest = 1 + step / 3;
        if (random() % 3 > 0) {
          ranks.plane(rank)
              .Arm(Candidate(newest, int64_t{in_slot ? 256 : 16} << newest % 5,
                             newest % 2 ? RailAlgorithm::kRing : RailAlgorithm::kDoubling))
              .IgnoreError();
        }
        const absl::Status status = ranks.Step(rank, static_cast<float>(step));
        ASSERT_TRUE(status.ok()) << status;
        in_force[rank].push_back(ranks.Generation(rank));
      }
    });
    for (int32_t rank = 1; rank < size; ++rank) EXPECT_EQ(in_force[rank], in_force[0]) << "rank " << rank << " of " << size;
    EXPECT_GT(in_force[0].back(), 5);
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, PacingAtAnyTimeTest, testing::Values(Rows::kBeside, Rows::kInSlot),
                         [](const auto& info) { return info.param == Rows::kInSlot ? "InSlot" : "Beside"; });

// What cannot happen, made by hand: it is an error at once, with both ranks and generations, where it would be a hang.
TEST(DataPlanePacingTest, RanksUnderTwoGenerationsSaySoInTheGather) {
  for (const auto rail : {RailAlgorithm::kDoubling, RailAlgorithm::kRing}) {
    for (const int32_t per_host : {1, 2}) {
      Ranks ranks(2, per_host, {Candidate(3, 1 << 20), Candidate(4, 16, rail)});
      const absl::Time start = absl::Now();
      ranks.OnAll([&](int32_t rank) {
        const absl::Status status = ranks.Gather(rank, 0, 1);
        EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
        EXPECT_THAT(status.message(), HasSubstr("all-gather of 'a'"));
        EXPECT_THAT(status.message(), HasSubstr(rank == 0 ? "rank 1 gathers under pacing generation 4, this rank under 3"
                                                          : "rank 0 gathers under pacing generation 3, this rank under 4"));
      });
      EXPECT_LT(absl::Now() - start, absl::Seconds(15));  // less than the wait's own limit
    }
  }
}

TEST(DataPlanePacingTest, RanksUnderTwoGenerationsSaySoInTheReduction) {
  Ranks ranks(2, 1, {Candidate(3, 1 << 20), Candidate(4, 16)});
  ranks.OnAll([&](int32_t rank) {
    EXPECT_THAT(ranks.Reduce(rank, 1).message(),
                HasSubstr(rank == 0 ? "rank 1 reduces the gradients of unit 'b' under pacing generation 4, this rank under 3"
                                    : "rank 0 reduces the gradients of unit 'b' under pacing generation 3, this rank under 4"));
  });
}

TEST(DataPlanePacingTest, CountsWhatWasGatheredAndSent) {
  Ranks ranks(2, 1, {Candidate(0, 64)});
  ranks.OnAll([&](int32_t rank) { ASSERT_TRUE(ranks.Step(rank, 1).ok()); });
  const CollectiveCounts counts = ranks.plane(0).TakeCounts();
  EXPECT_EQ(counts.gathered_bytes, 2 * kUnits * 5 * 16);  // twice in a step, 5 rows
  EXPECT_EQ(counts.network_bytes, 2 * kUnits * 3 * 16);   // the own shard to the other host
  EXPECT_GT(counts.gather_seconds, 0);
  EXPECT_GT(counts.reduce_seconds, 0);
  EXPECT_EQ(ranks.plane(0).TakeCounts().gathered_bytes, 0);
}

}  // namespace
}  // namespace tidetape::agent
