#include "server/ctl/compare_plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidetape::ctl {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

v1::BlockPlan* AddBlock(v1::Plan& plan, const std::string& name, uint64_t structure_hash, const std::vector<int32_t>& saved) {
  v1::BlockPlan* block = plan.add_blocks();
  block->set_name(name);
  block->set_structure_hash(structure_hash);
  block->mutable_saved()->Add(saved.begin(), saved.end());
  return block;
}

TEST(ComparePlans, NamesWhatIsNewlyKeptAndWhatNoLonger) {
  v1::Plan before, after;
  AddBlock(before, "layers.0", 7, {1, 2, 5});
  AddBlock(before, "layers.1", 7, {1});
  AddBlock(after, "layers.0", 7, {2, 3, 4});
  AddBlock(after, "layers.1", 7, {1});
  const auto differences = ComparePlans(before, after, {{7, {"input", "norm", "query", "key", ""}}});
  ASSERT_EQ(differences.size(), 1);
  EXPECT_EQ(differences[0].name, "layers.0");
  EXPECT_THAT(differences[0].newly_kept, ElementsAre("key", "storage 4"));
  EXPECT_THAT(differences[0].no_longer_kept, ElementsAre("norm", "storage 5"));
  EXPECT_EQ(differences[0].before, &before.blocks(0));
  EXPECT_EQ(differences[0].after, &after.blocks(0));
}

TEST(ComparePlans, BlocksOfOtherStructureAreNotComparedValueByValue) {
  v1::Plan before, after;
  AddBlock(before, "layers.0", 7, {1});
  AddBlock(after, "layers.0", 8, {1, 2});
  const auto differences = ComparePlans(before, after, {});
  ASSERT_EQ(differences.size(), 1);
  EXPECT_THAT(differences[0].newly_kept, IsEmpty());
}

TEST(ComparePlans, ABlockMayBeInOnePlanAlone) {
  v1::Plan before, after;
  AddBlock(before, "layers.0", 7, {1});
  AddBlock(before, "layers.1", 7, {1});
  AddBlock(after, "layers.0", 7, {1});
  const auto differences = ComparePlans(before, after, {});
  ASSERT_EQ(differences.size(), 1);
  EXPECT_EQ(differences[0].name, "layers.1");
  EXPECT_EQ(differences[0].after, nullptr);
}

TEST(ComparePlans, AnotherOptionIsADifference) {
  v1::Plan before, after;
  AddBlock(before, "layers.0", 7, {})->set_option(0);
  AddBlock(after, "layers.0", 7, {})->set_option(1);
  EXPECT_EQ(ComparePlans(before, after, {}).size(), 1);
}

}  // namespace
}  // namespace tidetape::ctl
