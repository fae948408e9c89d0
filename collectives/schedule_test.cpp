#include "collectives/schedule.h"

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "collectives/all_gather_schedule.h"
#include "collectives/reduce_scatter_schedule.h"
#include "collectives/stable_hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidetape::collectives {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Layout TwoOnOneNode() {
  LayoutSpec spec;
  spec.meshes = {{"mesh", 2, 1, 2}};
  Parameter weight;
  weight.name = "weight";
  weight.shape = {4, 8};
  spec.units = {{"layers.0", "mesh", {weight}}};
  return *Layout::Create(spec);
}

Group First() {
  Group group;
  group.shards = {0, 1};
  group.per_node = 2;
  return group;
}

// The smallest schedules there are, step by step.
TEST(ScheduleTest, GatherOfTwoRanksReadsAsItShould) {
  const auto schedule = AllGatherSchedule(TwoOnOneNode(), 0, First(), {});
  ASSERT_TRUE(schedule.ok());
  std::vector<std::string> lines;
  for (int32_t i = 0; i < static_cast<int32_t>(schedule->steps.size()); ++i) lines.push_back(StepText(*schedule, i));
  EXPECT_THAT(lines, ElementsAre("step 0: signal 1 to rank 1",                  // my slot is free
                                 "step 1: wait for 1 of signal 1 from rank 1",  // and so is yours
                                 "step 2: put 32 bytes from arena+0 to rank 1 at 0, signal 0",
                                 "step 3: wait for 1 of signal 0 from rank 1", "step 4: flush"));
}

TEST(ScheduleTest, ReductionOfTwoRanksReadsAsItShould) {
  ScheduleOptions options;
  options.divide_factor = 2;
  const auto schedule = ReduceScatterSchedule(TwoOnOneNode(), 0, First(), options);
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(schedule->factor, 0.5);
  EXPECT_EQ(GradientsFreePhase(*schedule), 1);
  EXPECT_THAT(ScheduleText(*schedule),
              AllOf(HasSubstr("reduce-scatter of 'layers.0' on rank 0, hash " + HashText(schedule->hash())), HasSubstr("\nrows:\n"),
                    HasSubstr("put 32 bytes from gradient 0+32 to rank 1"),               // rows of rank 1
                    HasSubstr("sum 32 bytes of bfloat16 each from gradient 0+0 arena+"),  // own rows first, then rank 1's
                    HasSubstr(" to output 0+0")));
}

// Whatever differs in a schedule shows in its hash.
TEST(ScheduleTest, HashSeesEveryField) {
  Schedule schedule = *ReduceScatterSchedule(TwoOnOneNode(), 0, First(), {});
  const std::vector<std::function<void(Schedule&)>> changes = {
      [](Schedule& s) { s.collective = "x"; },
      [](Schedule& s) { s.unit = "x"; },
      [](Schedule& s) { s.rank = 5; },
      [](Schedule& s) { s.peer_sets = {{1}}; },
      [](Schedule& s) { s.source_sets[0][0].offset = 2; },
      [](Schedule& s) { std::swap(s.source_sets[0][0], s.source_sets[0][1]); },
      [](Schedule& s) { s.steps.pop_back(); },
      [](Schedule& s) { s.steps[0].kind = StepKind::kUse; },
      [](Schedule& s) { s.steps[0].dtype = DType::kUInt8; },
      [](Schedule& s) { s.steps[0].paced = true; },
      [](Schedule& s) { s.steps[0].peer = 7; },
      [](Schedule& s) { s.steps[0].signal = 9; },
      [](Schedule& s) { s.steps[0].count = 9; },
      [](Schedule& s) { s.steps[0].slot = 9; },
      [](Schedule& s) { s.steps[0].sources = 9; },
      [](Schedule& s) { s.steps[0].bytes = 9; },
      [](Schedule& s) { s.steps[0].source.buffer = Buffer::kOutput; },
      [](Schedule& s) { s.steps[0].source.index = 1; },
      [](Schedule& s) { s.steps[0].destination.offset = 1; },
      [](Schedule& s) { s.phases[1].name = "x"; },
      [](Schedule& s) { s.phases[1].first_step = 0; },
      [](Schedule& s) { s.factor = 0.25; },
      [](Schedule& s) { s.puts_in_flight = 7; },
      [](Schedule& s) { s.gap = absl::Nanoseconds(1); },
  };
  std::set<uint64_t> hashes = {schedule.hash()};
  for (const auto& change : changes) {
    Schedule changed = schedule;
    change(changed);
    hashes.insert(changed.hash());
  }
  EXPECT_EQ(hashes.size(), changes.size() + 1);
}

TEST(ScheduleTest, RefusesWhatDoesNotFit) {
  const Layout layout = TwoOnOneNode();
  const auto message = [](const auto& schedule) { return std::string(schedule.status().message()); };
  Group group = First();
  EXPECT_THAT(message(AllGatherSchedule(layout, 1, group, {})), HasSubstr("no unit 1"));
  group.shards = {0, 1, 2};
  EXPECT_THAT(message(AllGatherSchedule(layout, 0, group, {})), HasSubstr("'layers.0', mesh 'mesh': the group has 3 ranks"));
  group = First();
  group.shards = {4, 4};
  EXPECT_THAT(message(AllGatherSchedule(layout, 0, group, {})), HasSubstr("a rank appears twice"));
  group = First();
  group.per_node = 1;
  EXPECT_THAT(message(ReduceScatterSchedule(layout, 0, group, {})), HasSubstr("1 ranks a node, the mesh 2"));
  ScheduleOptions options;
  options.puts_in_flight = 257;
  EXPECT_THAT(message(AllGatherSchedule(layout, 0, First(), options)), HasSubstr("puts_in_flight is 257, must be from 1 to 256"));
  options = {};
  options.divide_factor = 0;
  EXPECT_THAT(message(ReduceScatterSchedule(layout, 0, First(), options)), HasSubstr("divide_factor"));
  options = {};
  options.chunk_bytes = 8;
  EXPECT_THAT(message(ReduceScatterSchedule(layout, 0, First(), options)), HasSubstr("chunk_bytes"));
}

TEST(ScheduleTest, RefusesGradientsThatItCannotAdd) {
  LayoutSpec spec = TwoOnOneNode().spec();
  spec.units[0].parameters[0].gradient_dtype = DType::kFloat16;
  const auto schedule = ReduceScatterSchedule(*Layout::Create(spec), 0, First(), {});
  EXPECT_THAT(std::string(schedule.status().message()), HasSubstr("'layers.0', parameter 'weight': its gradient is float16"));
}

TEST(ScheduleTest, FrozenUnitsHaveNothingToReduce) {
  LayoutSpec spec = TwoOnOneNode().spec();
  spec.units[0].parameters[0].frozen = true;
  const auto schedule = ReduceScatterSchedule(*Layout::Create(spec), 0, First(), {});
  ASSERT_TRUE(schedule.ok());
  EXPECT_TRUE(schedule->steps.empty());
  EXPECT_EQ(GradientsFreePhase(*schedule), -1);
}

TEST(ScheduleTest, StagingTooSmallForANodeIsNamed) {
  LayoutSpec spec;
  spec.meshes = {{"mesh", 64, 1, 64}};
  Parameter weight;
  weight.name = "weight";
  weight.shape = {64, 4096};
  spec.units = {{"layers.0", "mesh", {weight}}};
  spec.options.staging_bytes = 4096;
  spec.options.reuse_slots = false;
  Group group;
  group.per_node = 64;
  for (int32_t g = 0; g < 64; ++g) group.shards.push_back(g);
  EXPECT_THAT(std::string(ReduceScatterSchedule(*Layout::Create(spec), 0, group, {}).status().message()),
              HasSubstr("'layers.0': staging_bytes is 4096, too small for 126 slots"));
}

}  // namespace
}  // namespace tidetape::collectives
