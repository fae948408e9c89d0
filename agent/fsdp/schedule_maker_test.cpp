#include "agent/fsdp/schedule_maker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidetape::agent {
namespace {

using collectives::CollectiveKind;
using collectives::DType;
using collectives::Group;
using collectives::Layout;
using collectives::LayoutSpec;
using testing::HasSubstr;

Layout MakeLayout(bool frozen = false) {
  LayoutSpec spec;
  spec.meshes = {{"all", 3, 1, 3}};
  spec.units = {{"a", "all", {{.name = "weight", .shape = {70}, .dtype = DType::kFloat32, .gradient_dtype = DType::kFloat32}}}};
  spec.units[0].parameters[0].frozen = frozen;
  spec.options.host_ranks = 3;
  spec.options.staging_bytes = 4096;
  return *Layout::Create(spec);
}

std::vector<Group> AllGroups() {
  std::vector<Group> groups;
  for (int32_t rank = 0; rank < 3; ++rank) groups.push_back({{0, 1, 2}, 3, rank, {}, 0});
  return groups;
}

TEST(ScheduleMakerTest, HandsOutWhatWasProvedAndTheHashesOfAllRanks) {
  const Layout layout = MakeLayout();
  const ScheduleMaker plain(layout, {AllGroups()[1]}, {}), proving(layout, {AllGroups()[1]}, {AllGroups()});
  EXPECT_FALSE(plain.proves());
  for (CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
    ScheduleMaker::Hashes hashes;
    const auto schedule = proving.Make(kind, 0, {}, &hashes);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    EXPECT_EQ(schedule->rank, 1);
    EXPECT_EQ(schedule->hash(), plain.Make(kind, 0, {})->hash());
    ASSERT_EQ(hashes.size(), 3);
    EXPECT_EQ(hashes[1], schedule->hash());
    EXPECT_NE(hashes[0], hashes[1]);
  }
}

// A rank that takes no part leaves the others waiting: the verifier must see it.
TEST(ScheduleMakerTest, RefusesSchedulesThatAreNotSoundTogether) {
  const Layout layout = MakeLayout();
  const ScheduleMaker maker(layout, {AllGroups()[1]}, {{AllGroups()[0], AllGroups()[1]}});
  const absl::Status status = maker.Make(CollectiveKind::kReduceScatter, 0, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("schedules are not sound"));
}

TEST(ScheduleMakerTest, NothingIsReducedWhereAllIsFrozen) {
  const Layout layout = MakeLayout(true);
  const ScheduleMaker maker(layout, {AllGroups()[1]}, {AllGroups()});
  const auto schedule = maker.Make(CollectiveKind::kReduceScatter, 0, {});
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_TRUE(schedule->steps.empty());
}

}  // namespace
}  // namespace tidetape::agent
