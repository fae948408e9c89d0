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
constexpr int64_t kRows = 5;  // uneven: 3 and 2

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
  spec.options.reuse_slots = false;
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

  float* Place(int32_t rank, int32_t unit) {
    return reinterpret_cast<float*>(planes_[rank]->arena().data() + planes_[rank]->layout().units()[unit].parameters[0].offset);
  }

  // Gathers base, base + 1, ... and looks at what has come.
  void Gather(int32_t rank, int32_t unit, float base) {
    DataPlane& plane = *planes_[rank];
    ASSERT_TRUE(plane.Admit(unit, 0).ok());
    for (int64_t row = 3 * rank; row < (rank == 0 ? 3 : kRows); ++row) Place(rank, unit)[row] = base + static_cast<float>(row);
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
    const absl::Status status = planes_[rank]->Admit(2, 0);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_NE(status.message().find("'c' wants a slot that unit 'a' holds"), absl::string_view::npos) << status;
    EXPECT_EQ(planes_[rank]->Holder(1), -1);
  });
}

TEST_F(DataPlaneTest, ReducesWhatSomeRankHas) {
  OnBoth([&](int32_t rank) {
    for (int round = 0; round < 20; ++round) {
      const bool has = round % 3 == 0 || rank == round % 2;
      const auto agreed = planes_[rank]->Agree({1, false, 2, {has}}, round);
      ASSERT_TRUE(agreed.ok()) << agreed.status();
      EXPECT_TRUE(agreed->present[0]);
      std::vector<float> gradient(kRows, static_cast<float>(rank + 1)), shard(rank == 0 ? 3 : 2, 10);
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

TEST_F(DataPlaneTest, OtherUnitsFailOnBothAtOnceAndForGood) {
  OnBoth([&](int32_t rank) {
    const absl::Status status = planes_[rank]->Agree({rank, false, 2, {true}}, 7).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find("training step 7"), absl::string_view::npos) << status;
    EXPECT_EQ(planes_[rank]->Admit(0, 8), status);
  });
}

}  // namespace
}  // namespace tidetape::agent
