// Schedules that were right and are broken by hand in one place: each must be refused, for the right reason.
#include <functional>
#include <string>
#include <vector>

#include "collectives/testing/runs.h"
#include "collectives/verifier/schedule_verifier.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidetape::collectives {
namespace {

using ::testing::StartsWith;

// Eight ranks on two nodes. 'w' has uneven shards (padding behind the last), several puts each; 'v' follows it.
Layout MakeLayout(int32_t host_ranks = 0) {
  LayoutSpec spec;
  spec.meshes = {{"mesh", 8, 1, 4}};
  Parameter w, v;
  w.name = "w";
  w.shape = {8 * 90 - 1, 2};
  v.name = "v";
  v.shape = {16};
  v.gradient_dtype = DType::kFloat32;
  spec.units = {{"layers.0", "mesh", {w, v}}};
  spec.options.staging_bytes = 4096;
  spec.options.accumulator_bytes = 8192;
  spec.options.reuse_slots = false;
  spec.options.host_ranks = host_ranks;
  auto layout = Layout::Create(spec);
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *std::move(layout);
}

ScheduleOptions Options() {
  ScheduleOptions options;
  options.chunk_bytes = 128;
  options.puts_in_flight = 3;
  return options;
}

CollectiveRun SoundRun(const Layout& layout, CollectiveKind kind, RailAlgorithm rail) {
  ScheduleOptions options = Options();
  options.rail = rail;
  auto run = MakeRun(layout, kind, 0, options);
  EXPECT_TRUE(run.ok()) << run.status();
  EXPECT_TRUE(VerifyCollective(layout, *run).ok()) << VerifyCollective(layout, *run);
  return *std::move(run);
}

// The n-th step of the kind that the condition accepts, n < 0 from the end.
int32_t Find(const Schedule& schedule, StepKind kind, int32_t n, const std::function<bool(const Step&)>& accept = nullptr) {
  std::vector<int32_t> found;
  for (int32_t i = 0; i < static_cast<int32_t>(schedule.steps.size()); ++i) {
    if (schedule.steps[i].kind == kind && (accept == nullptr || accept(schedule.steps[i]))) found.push_back(i);
  }
  return found.at(n < 0 ? found.size() + n : n);
}

void Insert(Schedule& schedule, int32_t at, const Step& step) {
  schedule.steps.insert(schedule.steps.begin() + at, step);
  for (Phase& phase : schedule.phases) phase.first_step += phase.first_step > at;
}

void Erase(Schedule& schedule, int32_t at) {
  schedule.steps.erase(schedule.steps.begin() + at);
  for (Phase& phase : schedule.phases) phase.first_step -= phase.first_step > at;
}

struct Case {
  std::string name;
  CollectiveKind kind;
  std::function<void(std::vector<Schedule>&, const Layout&)> destroy;
  ::testing::Matcher<std::string> reason;
  RailAlgorithm rail = RailAlgorithm::kDoubling;
};

constexpr CollectiveKind kGather = CollectiveKind::kAllGather;
constexpr CollectiveKind kReduce = CollectiveKind::kReduceScatter;

bool FromGradient(const Step& step) { return step.source.buffer == Buffer::kGradient; }

using Schedules = std::vector<Schedule>;

std::vector<Case> Cases() {
  return {
      {"PutMissing", kGather, [](Schedules& s, const Layout&) { Erase(s[0], Find(s[0], StepKind::kPut, 1)); },
       StartsWith("waits for more signals than are sent")},
      {"PutTwice", kGather,
       [](Schedules& s, const Layout&) { Insert(s[1], Find(s[1], StepKind::kPut, 3), s[1].steps[Find(s[1], StepKind::kPut, 3)]); },
       StartsWith("too many bytes")},
      {"SameChunkInsteadOfNext", kGather,
       [](Schedules& s, const Layout&) {
         Step& second = s[1].steps[Find(s[1], StepKind::kPut, 3)];  // after a flush, so that it comes certainly later
         const Step& first = s[1].steps[Find(s[1], StepKind::kPut, 0)];
         second.source = first.source;
         second.destination = first.destination;
       },
       StartsWith("arrives twice")},
      {"WrongDestination", kGather,
       [](Schedules& s, const Layout&) { s[2].steps[Find(s[2], StepKind::kPut, 0)].destination.offset += 2; },
       StartsWith("lands in the wrong place")},
      {"WrongSource", kGather,
       [](Schedules& s, const Layout&) {
         Step& put = s[2].steps[Find(s[2], StepKind::kPut, 0)];
         put.source.offset += 2;
         put.bytes -= 2;
       },
       StartsWith("lands in the wrong place")},
      {"ByteShort", kGather, [](Schedules& s, const Layout&) { s[3].steps[Find(s[3], StepKind::kMulticast, 0)].bytes -= 1; },
       StartsWith("never arrives")},
      {"PaddingSent", kGather,
       [](Schedules& s, const Layout&) {
         // The last rank's shard of 'w' is one row short; stay within the least bytes.
         const int32_t full = Find(s[7], StepKind::kMulticast, 2);
         s[7].steps[full].bytes += 4;
         s[7].steps[Find(s[7], StepKind::kMulticast, 0)].bytes -= 4;
       },
       StartsWith("reads bytes that nobody wrote")},
      {"OutOfArena", kGather,
       [](Schedules& s, const Layout& l) { s[4].steps[Find(s[4], StepKind::kPut, 0)].source.offset = l.arena_bytes() - 1; },
       StartsWith("out of bounds")},
      {"NobodySaidReady", kGather,
       [](Schedules& s, const Layout& l) {
         const int32_t ready = l.ReadySignal(0);
         Erase(s[4], Find(s[4], StepKind::kSignal, 0, [](const Step& step) { return step.peer == 0; }));
         Erase(s[0], Find(s[0], StepKind::kWait, 0, [=](const Step& step) { return step.peer == 4 && step.signal == ready; }));
       },
       StartsWith("race")},
      {"HandedOnBeforeArrival", kGather,
       [](Schedules& s, const Layout& l) {
         // Rank 1 takes the first wait for rank 5's shard after its multicasts.
         const int32_t data = l.GatherSignal(0);
         const int32_t wait =
             Find(s[1], StepKind::kWait, 0, [=](const Step& step) { return step.peer == 5 && step.signal == data; });
         const Step moved = s[1].steps[wait];
         Erase(s[1], wait);
         Insert(s[1], static_cast<int32_t>(s[1].steps.size()) - 1, moved);
       },
       StartsWith("race"), RailAlgorithm::kRing},
      {"WaitsForTooFew", kGather, [](Schedules& s, const Layout&) { --s[0].steps[Find(s[0], StepKind::kWait, -1)].count; },
       StartsWith("signals are never waited for")},
      {"WaitsForTooMany", kGather, [](Schedules& s, const Layout&) { ++s[0].steps[Find(s[0], StepKind::kWait, -1)].count; },
       StartsWith("waits for more signals than are sent")},
      {"BothWaitBeforeTheySend", kGather,
       [](Schedules& s, const Layout& l) {
         for (int32_t rank : {0, 4}) {
           const int32_t data = l.GatherSignal(0), ready = l.ReadySignal(0), partner = rank ^ 4;
           const int32_t wait =
               Find(s[rank], StepKind::kWait, 0, [=](const Step& step) { return step.peer == partner && step.signal == data; });
           const Step moved = s[rank].steps[wait];
           Erase(s[rank], wait);
           Insert(s[rank], Find(s[rank], StepKind::kWait, 0, [=](const Step& step) { return step.signal == ready; }), moved);
         }
       },
       StartsWith("deadlock")},
      {"NoLastFlush", kGather, [](Schedules& s, const Layout&) { Erase(s[5], Find(s[5], StepKind::kFlush, -1)); },
       StartsWith("race")},
      {"TooManyInFlight", kGather, [](Schedules& s, const Layout&) { Erase(s[5], Find(s[5], StepKind::kFlush, 0)); },
       StartsWith("in flight")},
      {"LimitAboveNccls", kGather, [](Schedules& s, const Layout&) { s[5].puts_in_flight = 257; }, StartsWith("in flight")},
      {"NoSuchSignal", kGather,
       [](Schedules& s, const Layout& l) { s[6].steps[Find(s[6], StepKind::kPut, 0)].signal = l.signals(); },
       StartsWith("no such signal")},
      {"NoSuchPeer", kGather, [](Schedules& s, const Layout&) { s[6].steps[Find(s[6], StepKind::kPut, 0)].peer = 8; },
       StartsWith("no such peer")},
      {"MulticastMissesOne", kGather, [](Schedules& s, const Layout&) { s[6].peer_sets[0].pop_back(); },
       StartsWith("waits for more signals than are sent")},
      {"AddTwice", kReduce, [](Schedules& s, const Layout&) { s[0].source_sets[0].push_back(s[0].source_sets[0][1]); },
       StartsWith("wrong sum")},
      {"AddMissing", kReduce, [](Schedules& s, const Layout&) { s[0].source_sets[0].pop_back(); }, StartsWith("wrong sum")},
      {"SumOfNothing", kReduce, [](Schedules& s, const Layout&) { s[0].source_sets[0].clear(); },
       StartsWith("no such set of sources")},
      {"StoreInsteadOfAdd", kReduce,
       [](Schedules& s, const Layout&) { s[1].steps[Find(s[1], StepKind::kAdd, 1)].kind = StepKind::kStore; },
       StartsWith("wrong sum")},
      {"AddInsteadOfStore", kReduce,
       [](Schedules& s, const Layout&) {
         Step& sum = s[1].steps[Find(s[1], StepKind::kSum, 0)];
         sum.kind = StepKind::kAdd;
         sum.source = s[1].source_sets[sum.sources][0];
       },
       StartsWith("adds to bytes that nobody wrote")},
      {"AddsNeighbour", kReduce,
       [](Schedules& s, const Layout&) {
         Place& own = s[2].source_sets[0][2];
         ASSERT_EQ(own.buffer, Buffer::kGradient);
         own.offset += 2;
       },
       StartsWith("adds different elements")},
      {"ReadsFloatsAsBFloats", kReduce,
       [](Schedules& s, const Layout&) {
         Step& sum = s[0].steps[Find(s[0], StepKind::kSum, 0, [](const Step& step) { return step.dtype == DType::kFloat32; })];
         sum.dtype = DType::kBFloat16;
         sum.bytes /= 2;
       },
       StartsWith("reads elements wrongly")},
      {"SlotFreedBeforeAdd", kReduce,
       [](Schedules& s, const Layout& l) {
         const int32_t free = l.Signal(ReduceSignal::kRowsFree);
         const int32_t at = Find(s[0], StepKind::kSignal, 0, [=](const Step& step) { return step.signal == free; });
         std::swap(s[0].steps[at], s[0].steps[at - 1]);  // with the add that reads the slot
       },
       StartsWith("race")},
      {"SlotTakenWithoutAsking", kReduce,
       [](Schedules& s, const Layout& l) {
         const int32_t free = l.Signal(ReduceSignal::kRowsFree);
         Erase(s[0], Find(s[0], StepKind::kSignal, 0, [=](const Step& step) { return step.signal == free && step.peer == 1; }));
         Erase(s[1], Find(s[1], StepKind::kWait, 0, [=](const Step& step) { return step.signal == free && step.peer == 0; }));
       },
       StartsWith("race")},
      {"GradientsFreedTooEarly", kReduce,
       [](Schedules& s, const Layout&) {
         // The flush that ends the last rows phase.
         int32_t phase = GradientsFreePhase(s[3]);
         Erase(s[3], s[3].end(phase) - 1);
       },
       StartsWith("race")},
      {"WrittenTwice", kReduce,
       [](Schedules& s, const Layout&) {
         Insert(s[4], Find(s[4], StepKind::kScale, 0), s[4].steps[Find(s[4], StepKind::kScale, 0)]);
       },
       StartsWith("arrives twice")},
      {"NeverWritten", kReduce, [](Schedules& s, const Layout&) { Erase(s[4], Find(s[4], StepKind::kScale, -1)); },
       StartsWith("wrong sum")},
      {"GradientTooShort", kReduce,
       [](Schedules& s, const Layout&) {
         s[5].steps[Find(s[5], StepKind::kPut, 0, FromGradient)].source.offset += int64_t{1} << 40;
       },
       StartsWith("out of bounds")},
      {"AddsOtherSlot", kReduce,
       [](Schedules& s, const Layout&) {
         Place& staged = s[6].source_sets[0][0];
         ASSERT_EQ(staged.buffer, Buffer::kArena);
         staged.offset += 64;
       },
       StartsWith("race")},
      {"RingsWaitFirst", kReduce,
       [](Schedules& s, const Layout& l) {
         // On one rail, both ranks take their first wait for the other before their first send.
         for (int32_t rank : {3, 7}) {
           const int32_t data = l.Signal(ReduceSignal::kRail);
           const int32_t wait = Find(s[rank], StepKind::kWait, 0, [=](const Step& step) { return step.signal == data; });
           const Step moved = s[rank].steps[wait];
           Erase(s[rank], wait);
           Insert(s[rank], Find(s[rank], StepKind::kPut, 0, [=](const Step& step) { return step.signal == data; }), moved);
         }
       },
       StartsWith("deadlock")},
  };
}

TEST(BrokenSchedulesTest, EachIsRefusedForTheRightReason) {
  const Layout layout = MakeLayout();
  for (const Case& broken : Cases()) {
    SCOPED_TRACE(broken.name);
    CollectiveRun run = SoundRun(layout, broken.kind, broken.rail);
    broken.destroy(run.schedules, layout);
    const absl::Status status = VerifyCollective(layout, run);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), broken.reason);
  }
}

// Ranks 0 to 3 share their slots: rank 0 must not write its shard before rank 1 has finished with the slot, nor let rank 4 write.
TEST(BrokenSchedulesTest, SeesASharedSlotWrittenWithoutANeighboursWord) {
  const Layout layout = MakeLayout(4);
  CollectiveRun run = SoundRun(layout, kGather, RailAlgorithm::kDoubling);
  const int32_t ready = layout.ReadySignal(0);
  Erase(run.schedules[1], Find(run.schedules[1], StepKind::kSignal, 0, [](const Step& step) { return step.peer == 0; }));
  Erase(run.schedules[0],
        Find(run.schedules[0], StepKind::kWait, 0, [=](const Step& step) { return step.peer == 1 && step.signal == ready; }));
  EXPECT_THAT(std::string(VerifyCollective(layout, run).message()),
              ::testing::AllOf(StartsWith("race"), ::testing::HasSubstr("rank 1, what read the arena before")));
}

// A whole message, as somebody would read it: who, where, and against whom.
TEST(BrokenSchedulesTest, SaysWhoRacesWithWhom) {
  const Layout layout = MakeLayout();
  CollectiveRun run = SoundRun(layout, kGather, RailAlgorithm::kDoubling);
  Erase(run.schedules[5], Find(run.schedules[5], StepKind::kFlush, -1));
  EXPECT_THAT(std::string(VerifyCollective(layout, run).message()),
              ::testing::AllOf(::testing::HasSubstr("rank 5, what writes the arena after"),
                               ::testing::HasSubstr("all-gather of 'layers.0'"), ::testing::HasSubstr("which reads it")));
}

}  // namespace
}  // namespace tidetape::collectives
