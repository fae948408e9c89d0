// Two ranks as threads, over a transport that carries things out as late as it may.
#include "agent/fsdp/data_plane.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>

#include "collectives/testing/thread_transport.h"

namespace tidetape::agent {
namespace {

using collectives::DType;
using collectives::Group;
using collectives::Layout;
using collectives::LayoutSpec;
using collectives::ReduceBuffers;
using collectives::ThreadGroup;

constexpr int32_t kRanks = 2;
constexpr int64_t kRows = 4101;  // uneven, and enough to stage in a rank's part of the slot
constexpr int64_t kFirstRows = (kRows + 1) / 2;

// Three units that take turns on two slots.
Layout MakeLayout() {
  LayoutSpec spec;
  spec.meshes = {{"all", kRanks, 1, kRanks}};
  for (const char* name : {"a", "b", "c"}) {
    spec.units.push_back(
        {name, "all", {{.name = "weight", .shape = {kRows}, .dtype = DType::kFloat32, .gradient_dtype = DType::kFloat32}}});
  }
  spec.options.host_ranks = kRanks;
  spec.options.staging_bytes = 4096;
  spec.options.spare_staging = true;
  return *Layout::Create(spec);
}

class DataPlaneTest : public testing::Test {
 protected:
  void SetUp() override {
    const Layout layout = MakeLayout();
    ThreadGroup::Options options;
    options.ranks = options.host_ranks = kRanks;
    options.signals = DataPlane::Signals(layout);
    options.arena_bytes = static_cast<int64_t>(DataPlane::ArenaBytes(layout, kRanks) + 4095) / 4096 * 4096;
    options.shared_bytes = layout.shared_region().bytes;
    group_ = std::make_unique<ThreadGroup>(options);
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      const Group group = {{0, 1}, kRanks, rank, {}, 0};
      DataPlane::Options limits;
      limits.executor.wait_limit = absl::Seconds(5);
      planes_.push_back(*DataPlane::Create(MakeLayout(), std::vector<Group>(3, group), group_->MakeTransport(rank), limits));
    }
  }

  // On both ranks at once.
  static void OnBoth(const std::function<void(int32_t)>& function) {
    std::thread other([&] { function(1); });
    function(0);
    other.join();
  }

  static int64_t RowsOf(int32_t rank) { return rank == 0 ? kFirstRows : kRows - kFirstRows; }

  // Reduces gradients of `value`; returns the agreed notice.
  GradientNotice Reduce(int32_t rank, int32_t unit, float value, std::vector<float>& shard) {
    const auto agreed = planes_[rank]->Agree({unit, false, 1, false, {true}}, 0);
    EXPECT_TRUE(agreed.ok()) << agreed.status();
    const std::vector<float> gradient(kRows, value);
    ReduceBuffers buffers;
    buffers.gradients.push_back({reinterpret_cast<const std::byte*>(gradient.data()), gradient.size() * sizeof(float)});
    buffers.outputs.push_back({absl::MakeSpan(shard), false});
    EXPECT_TRUE(planes_[rank]->ReduceGradients(*agreed, buffers, 0).ok());
    EXPECT_TRUE(planes_[rank]->FinishReduction(*agreed, buffers, 0).ok());
    return *agreed;
  }

  float* Place(int32_t rank, int32_t unit) {
    return reinterpret_cast<float*>(planes_[rank]->arena().data() + planes_[rank]->layout().units()[unit].parameters[0].offset);
  }

  // Gathers base, base + 1, ... and looks at what has come.
  void Gather(int32_t rank, int32_t unit, float base, bool reduction_next = false) {
    DataPlane& plane = *planes_[rank];
    ASSERT_TRUE(plane.Admit(unit, reduction_next, 0).ok());
    for (int64_t row = kFirstRows * rank; row < (rank == 0 ? kFirstRows : kRows); ++row)
      Place(rank, unit)[row] = base + static_cast<float>(row);
    ASSERT_TRUE(plane.Send(unit, 0).ok());
    ASSERT_TRUE(plane.Finish(unit, 0).ok());
    for (int64_t row = 0; row < kRows; ++row) EXPECT_EQ(Place(rank, unit)[row], base + static_cast<float>(row));
    EXPECT_EQ(plane.Holder(unit), unit);
  }

  std::unique_ptr<ThreadGroup> group_;
  std::vector<std::unique_ptr<DataPlane>> planes_;
};

TEST_F(DataPlaneTest, UnitsTakeTurnsOnSlots) {
  OnBoth([&](int32_t rank) {
    for (int step = 0; step < 50; ++step) {
      for (int32_t unit : {0, 1, 2, 1, 0}) {
        Gather(rank, unit, static_cast<float>(100 * step + 10 * unit));
        planes_[rank]->Release(unit);
        EXPECT_EQ(planes_[rank]->Holder(unit), -1);
      }
    }
  });
}

TEST_F(DataPlaneTest, AHeldSlotIsNotGivenAway) {
  OnBoth([&](int32_t rank) {
    Gather(rank, 0, 1);
    EXPECT_EQ(planes_[rank]->Holder(2), 0);  // of the same slot
    const absl::Status status = planes_[rank]->Admit(2, false, 0);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_NE(status.message().find("'c' wants a slot that unit 'a' holds"), absl::string_view::npos) << status;
    EXPECT_EQ(planes_[rank]->Holder(1), -1);
  });
}

TEST_F(DataPlaneTest, ReducesWhatSomeRankHas) {
  OnBoth([&](int32_t rank) {
    for (int round = 0; round < 20; ++round) {
      const bool has = round % 3 == 0 || rank == round % 2;
      const auto agreed = planes_[rank]->Agree({1, false, 2, false, {has}}, round);
      ASSERT_TRUE(agreed.ok()) << agreed.status();
      EXPECT_TRUE(agreed->present[0]);
      std::vector<float> gradient(kRows, static_cast<float>(rank + 1)), shard(RowsOf(rank), 10);
      ReduceBuffers buffers;
      buffers.gradients.emplace_back();
      if (has) buffers.gradients[0] = {reinterpret_cast<const std::byte*>(gradient.data()), gradient.size() * sizeof(float)};
      buffers.outputs.push_back({absl::MakeSpan(shard), true});
      ASSERT_TRUE(planes_[rank]->ReduceGradients(*agreed, buffers, round).ok());
      gradient.assign(kRows, -1);  // may be freed from here on
      ASSERT_TRUE(planes_[rank]->FinishReduction(*agreed, buffers, round).ok());
      const float sum = round % 3 == 0 ? 3 : static_cast<float>(round % 2 + 1);
      for (float value : shard) EXPECT_EQ(value, 10 + sum / 2);
    }
  });
}

// Both units of the first slot in turn, one of them reduced in between. A rank whose hint is wrong has told the slot ready.
TEST_F(DataPlaneTest, RowsWaitInTheSlotWhereAllHaveVacatedIt) {
  OnBoth([&](int32_t rank) {
    for (int round = 0; round < 40; ++round) {
      const bool hints[] = {round % 4 != 1, round % 4 < 2};
      Gather(rank, 0, static_cast<float>(round), hints[rank]);
      if (round % 8 != 4) planes_[rank]->Release(0);
      std::vector<float> shard(RowsOf(rank));
      const GradientNotice agreed = Reduce(rank, 0, static_cast<float>(round + rank), shard);
      EXPECT_EQ(agreed.slot_vacated, hints[0] && hints[1] && round % 8 != 4) << round;
      for (float value : shard) ASSERT_EQ(value, static_cast<float>(2 * round + 1));
      if (round % 8 == 4) planes_[rank]->Release(0);
      Gather(rank, 2, static_cast<float>(-round));
      planes_[rank]->Release(2);
    }
  });
}

TEST_F(DataPlaneTest, OtherUnitsFailOnBothAtOnceAndForGood) {
  OnBoth([&](int32_t rank) {
    const absl::Status status = planes_[rank]->Agree({rank, false, 2, false, {true}}, 7).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find("training step 7"), absl::string_view::npos) << status;
    EXPECT_EQ(planes_[rank]->Admit(0, false, 8), status);
  });
}

}  // namespace
}  // namespace tidetape::agent
