#include "planner/model/validate.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "planner/planner.h"

namespace tidetape::planner {
namespace {

using ::testing::HasSubstr;

// input -> a -> b (in place again by c), backward reads a and b.
PlanningProblem SmallProblem() {
  BlockTape tape{.name = "layer"};
  tape.storages = {
      {.bytes = 8, .kind = StorageKind::kBlockInput, .label = "x"}, {.bytes = 16, .label = "a"}, {.bytes = 32, .label = "b"}};
  tape.ops = {{.name = "mm", .cost_seconds = 1, .reads = {0}, .writes = {1}},
              {.name = "exp", .cost_seconds = 2, .reads = {1}, .writes = {2}},
              {.name = "add_", .cost_seconds = 1, .reads = {2}, .writes = {2}}};
  tape.consumed = {2, 1};
  tape.backward = {{.reads = {2}, .releases = {2}, .gradient_live_bytes = 4}, {.reads = {1}, .releases = {1}}};
  PlanningProblem problem{.memory_limit_bytes = 1000};
  problem.tapes = {tape};
  problem.blocks = {{.name = "layers.0"}, {.name = "layers.1", .gradient_live_bytes = {1, 2}, .start_live_bytes = {0, -3}}};
  return problem;
}

struct Case {
  std::string name;
  std::function<void(PlanningProblem&)> spoil;
  std::string message;
};

void PrintTo(const Case& test_case, std::ostream* out) { *out << test_case.name; }

class ValidateTest : public ::testing::TestWithParam<Case> {};

TEST_P(ValidateTest, NamesWhatIsWrong) {
  PlanningProblem problem = SmallProblem();
  GetParam().spoil(problem);
  for (const absl::Status& status :
       {ValidateProblem(problem), PlanStep(problem).status(), StepFrontier(problem).status(), EvaluatePlan(problem, {}).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
  }
}

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

INSTANTIATE_TEST_SUITE_P(
    Messages, ValidateTest,
    ::testing::Values(
        Case{"limit", [](auto& p) { p.memory_limit_bytes = -1; }, "problem: memory_limit_bytes is -1, must not be negative"},
        Case{"head", [](auto& p) { p.head_peak_bytes = -2; }, "problem: head_peak_bytes is -2"},
        Case{"optimizer", [](auto& p) { p.optimizer_peak_bytes = -2; }, "problem: optimizer_peak_bytes is -2"},
        Case{"host", [](auto& p) { p.host_bytes_limit = -2; }, "problem: host_bytes_limit is -2"},
        Case{"bandwidth", [](auto& p) { p.host_bytes_per_second = NAN; }, "problem: host_bytes_per_second is nan"},
        Case{"storage_bytes", [](auto& p) { p.tapes[0].storages[1].bytes = -5; },
             "tapes[0], block 'layer', storage 1 'a': bytes is -5, must not be negative"},
        Case{"contradiction", [](auto& p) { p.tapes[0].storages[1].must_save = p.tapes[0].storages[1].must_recompute = true; },
             "storage 1 'a': must_save and must_recompute exclude each other"},
        Case{"samples",
             [](auto& p) {
               p.tapes[0].storages[1].sampled_bytes = {1, 2};
             },
             "storage 1 'a': sampled_bytes has 2 entries, but that of the tape's first storage has 0"},
        Case{"sample_negative",
             [](auto& p) {
               for (Storage& storage : p.tapes[0].storages) storage.sampled_bytes = {3, -1};
             },
             "storage 0 'x': sampled_bytes is -1, must not be negative"},
        Case{"slack", [](auto& p) { p.tapes[0].forward_slack_bytes = {1}; },
             "block 'layer', forward_slack_bytes has 1 entries, but the tape has 3 ops"},
        Case{"slack_negative",
             [](auto& p) {
               p.tapes[0].forward_slack_bytes = {0, -7, 0};
             },
             "block 'layer', forward_slack_bytes, op 1 'exp': bytes is -7, must not be negative"},
        Case{"headroom_negative", [](auto& p) { p.headroom.head_bytes = -1; }, "headroom: head_bytes is -1, must not be negative"},
        Case{"headroom_head", [](auto& p) { p.headroom.head_bytes = p.head_peak_bytes + 1; },
             "which is more than head_peak_bytes = "},
        Case{"headroom_optimizer", [](auto& p) { p.headroom.optimizer_bytes = p.optimizer_peak_bytes + 1; },
             "which is more than optimizer_peak_bytes = "},
        Case{"headroom_block",
             [](auto& p) {
               for (BlockInstance& block : p.blocks) block.forward_base_bytes = block.backward_base_bytes = 50;
               p.blocks[1].backward_base_bytes = 40;
               p.headroom.block_bytes = 41;
             },
             "blocks[1] 'layers.1', headroom: block_bytes is 41, which is more than backward_base_bytes = 40"},
        Case{"storage_sum", [](auto& p) { p.tapes[0].storages[1].bytes = p.tapes[0].storages[2].bytes = kHuge; },
             "storage 1 'a': bytes of the block's storages exceed 2^61 here"},
        Case{"cost_nan", [](auto& p) { p.tapes[0].ops[1].cost_seconds = NAN; },
             "tapes[0], block 'layer', op 1 'exp': cost_seconds is nan, must be finite and not negative"},
        Case{"cost_infinite", [](auto& p) { p.tapes[0].ops[1].cost_seconds = INFINITY; }, "op 1 'exp': cost_seconds is inf"},
        Case{"cost_negative", [](auto& p) { p.tapes[0].ops[1].cost_seconds = -1; }, "op 1 'exp': cost_seconds is -1"},
        Case{"cost_sum", [](auto& p) { p.tapes[0].ops[0].cost_seconds = p.tapes[0].ops[1].cost_seconds = 1e308; },
             "op 1 'exp': cost_seconds of the block's ops overflow here"},
        Case{"workspace", [](auto& p) { p.tapes[0].ops[1].replay_workspace_bytes = -1; },
             "op 1 'exp': replay_workspace_bytes is -1"},
        Case{"reads_dangle",
             [](auto& p) {
               p.tapes[0].ops[1].reads = {1, 7};
             },
             "op 1 'exp': reads[1] is 7, but the tape has 3 storages"},
        Case{"writes_dangle", [](auto& p) { p.tapes[0].ops[1].writes = {-1}; },
             "op 1 'exp': writes[0] is -1, but the tape has 3 storages"},
        Case{
            "cycle", [](auto& p) { p.tapes[0].ops[0].reads = {2}; },
            "op 0 'mm': reads[0] is intermediate storage 2 'b', which no earlier op writes; ops must come in program order without "
            "cycles"},
        Case{"own_output", [](auto& p) { p.tapes[0].ops[0].reads = {1}; }, "op 0 'mm': reads[0] is intermediate storage 1 'a'"},
        Case{"consumed_dangles",
             [](auto& p) {
               p.tapes[0].consumed = {2, 3};
             },
             "block 'layer': consumed[1] is 3, but the tape has 3 storages"},
        Case{"consumed_twice",
             [](auto& p) {
               p.tapes[0].consumed = {2, 2};
             },
             "block 'layer': consumed[1] names storage 2 'b' a second time"},
        Case{"consumed_unwritten",
             [](auto& p) {
               p.tapes[0].storages.push_back({.bytes = 1, .label = "c"});
               p.tapes[0].consumed.push_back(3);
             },
             "consumed[2] is intermediate storage 3 'c', which no op writes"},
        Case{"value_dangles", [](auto& p) { p.tapes[0].values = {{.storage = 9, .version = 1}}; },
             "block 'layer', values[0]: storage[0] is 9"},
        Case{"value_version", [](auto& p) { p.tapes[0].values = {{.storage = 2, .version = 3}}; },
             "values[0]: version is 3, but storage 2 'b' has versions 1 to 2"},
        Case{"value_overwritten", [](auto& p) { p.tapes[0].values = {{.storage = 2, .version = 1}}; },
             "values[0]: backward reads version 1 of storage 2 'b', which a later op overwrites"},
        Case{"value_copy", [](auto& p) { p.tapes[0].values = {{.storage = 2, .version = 2, .copy_seconds = -1}}; },
             "values[0]: copy_seconds is -1"},
        Case{"event_reads", [](auto& p) { p.tapes[0].backward[1].reads = {-4}; }, "block 'layer', backward[1]: reads[0] is -4"},
        Case{"event_releases", [](auto& p) { p.tapes[0].backward[1].releases = {4}; }, "backward[1]: releases[0] is 4"},
        Case{"event_after_release", [](auto& p) { p.tapes[0].backward[1].reads = {1, 2}; },
             "backward[1]: reads[1] is storage 2 'b', which backward[0] released"},
        Case{"event_not_consumed", [](auto& p) { p.tapes[0].consumed = {2}; },
             "backward[1]: reads[0] is storage 1 'a', which consumed does not list"},
        Case{"event_live", [](auto& p) { p.tapes[0].backward[1].gradient_live_bytes = -kHuge; },
             "backward[1]: gradient_live_bytes is -9223372036854775807, which is below -2^61"},
        Case{"forward_base", [](auto& p) { p.blocks[1].forward_base_bytes = -1; },
             "blocks[1] 'layers.1': forward_base_bytes is -1"},
        Case{"backward_base", [](auto& p) { p.blocks[1].backward_base_bytes = -1; },
             "blocks[1] 'layers.1': backward_base_bytes is -1"},
        Case{"transient", [](auto& p) { p.blocks[1].backward_transient_bytes = -1; },
             "blocks[1] 'layers.1': backward_transient_bytes is -1"},
        Case{"tape_dangles", [](auto& p) { p.blocks[1].tape = 1; }, "blocks[1] 'layers.1': tape is 1, but the problem has 1 tapes"},
        Case{"held_dangles", [](auto& p) { p.blocks[1].held_inputs = {3}; },
             "blocks[1] 'layers.1': held_inputs[0] is 3, but the tape has 3 storages"},
        Case{"held_intermediate", [](auto& p) { p.blocks[1].held_inputs = {1}; },
             "blocks[1] 'layers.1': held_inputs[0] is storage 1 'a', which is no block input"},
        Case{"held_twice", [](auto& p) { p.blocks[1].held_inputs.assign(2, 0); },
             "blocks[1] 'layers.1': held_inputs[1] is 0 after 0; they must ascend"},
        Case{"gradient_length", [](auto& p) { p.blocks[1].gradient_live_bytes = {1}; },
             "blocks[1] 'layers.1': gradient_live_bytes has 1 entries, but the tape has 2 backward events"},
        Case{"start_length", [](auto& p) { p.blocks[1].start_live_bytes = {1, 2, 3}; },
             "blocks[1] 'layers.1': start_live_bytes has 3 entries, but the tape has 2 backward events"},
        Case{"instance_live", [](auto& p) { p.blocks[1].start_live_bytes = {1, -kHuge}; },
             "start_live_bytes[1] is -9223372036854775807"},
        Case{"option_bytes", [](auto& p) { p.blocks[1].options = {{}, {.saved_bytes = -1}}; },
             "blocks[1] 'layers.1', options[1]: saved_bytes is -1"},
        Case{"option_peak", [](auto& p) { p.blocks[1].options = {{.own_peak_bytes = -1}}; }, "options[0]: own_peak_bytes is -1"},
        Case{"option_seconds", [](auto& p) { p.blocks[1].options = {{.seconds = INFINITY}}; }, "options[0]: seconds is inf"},
        Case{"step_bytes", [](auto& p) { p.blocks[0].backward_base_bytes = kMostBytes - 90; },
             "blocks[1] 'layers.1': bytes of the step exceed 2^61 here"},
        Case{"step_seconds", [](auto& p) { p.blocks[0].options = p.blocks[1].options = {{.seconds = 1e308}}; },
             "blocks[1] 'layers.1': seconds of the step overflow here"}),
    [](const auto& info) { return info.param.name; });

TEST(ValidateProblemTest, AcceptsWhatIsLegal) {
  EXPECT_TRUE(ValidateProblem(SmallProblem()).ok()) << ValidateProblem(SmallProblem());
  EXPECT_TRUE(ValidateProblem(PlanningProblem{}).ok());
  PlanningProblem empty_tape;
  empty_tape.tapes.resize(1);
  empty_tape.blocks = {{.backward_transient_bytes = 5}};
  const auto plan = PlanStep(empty_tape);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->step_peak_bytes, 5);
  EXPECT_EQ(BlockFrontier(BlockTape{})->size(), 1u);

  PlanningProblem from_outside = SmallProblem();
  from_outside.tapes[0].storages.push_back({.bytes = 4, .must_save = true});
  from_outside.tapes[0].ops[1].reads.push_back(3);
  EXPECT_TRUE(ValidateProblem(from_outside).ok()) << ValidateProblem(from_outside);
}

}  // namespace
}  // namespace tidetape::planner
