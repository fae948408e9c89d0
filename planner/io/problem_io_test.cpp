#include "planner/io/problem_io.h"

#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "planner/io/plan_json.h"
#include "planner/planner.h"
#include "planner/testing/random_tape.h"

namespace tidetape::planner {
namespace {

using ::testing::HasSubstr;

constexpr char kSmall[] = R"({
  "memory_limit_bytes": "1000",
  "tapes": [{
    "name": "layer", "structure_hash": "18446744073709551615",
    "storages": [{"bytes": 8, "kind": "KIND_BLOCK_INPUT"}, {"bytes": "16", "site": "7", "label": "a"}, {"bytes": 32, "site": "9", "held_anyway": true}],
    "ops": [{"name": "mm", "cost_seconds": 0.5, "reads": [0], "writes": [1], "replayable": true, "replay_workspace_bytes": 3},
            {"name": "exp", "cost_seconds": 2, "reads": [1], "writes": [2], "replayable": true}],
    "consumed": [2, 1],
    "backward": [{"reads": [2], "releases": [2], "gradient_live_bytes": 4, "start_live_bytes": -1}, {"reads": [1], "releases": [1]}]
  }],
  "blocks": [{"name": "layers.0", "tape": 0, "backward_base_bytes": 11}],
  "head_peak_bytes": 5
})";

TEST(ProblemIoTest, ReadsEveryField) {
  const auto problem = ParseProblem(kSmall);
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(problem->memory_limit_bytes, 1000);
  EXPECT_EQ(problem->head_peak_bytes, 5);
  const BlockTape& tape = problem->tapes[0];
  EXPECT_EQ(tape.structure_hash, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(tape.storages[0].kind, StorageKind::kBlockInput);
  EXPECT_EQ(tape.storages[1].kind, StorageKind::kIntermediate);
  EXPECT_EQ(tape.storages[1].bytes, 16);
  EXPECT_EQ(tape.storages[1].site, 7u);
  EXPECT_EQ(tape.storages[1].label, "a");
  EXPECT_TRUE(tape.storages[2].held_anyway);
  EXPECT_EQ(tape.ops[0].cost_seconds, 0.5);
  EXPECT_EQ(tape.ops[0].replay_workspace_bytes, 3);
  EXPECT_EQ(tape.ops[1].reads, (std::vector<int32_t>{1}));
  EXPECT_EQ(tape.consumed, (std::vector<int32_t>{2, 1}));
  EXPECT_EQ(tape.backward[0].gradient_live_bytes, 4);
  EXPECT_EQ(tape.backward[0].start_live_bytes, -1);
  EXPECT_EQ(problem->blocks[0].backward_base_bytes, 11);
}

TEST(ProblemIoTest, RoundTripsThroughJson) {
  for (int seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    PlanningProblem problem = RandomProblem(random, 3, 6);
    problem.tapes[0].structure_hash = random();
    problem.tapes[0].values = {{.storage = 4, .version = 1, .copy_seconds = 0.125}};
    problem.memory_limit_bytes = kUnlimitedBytes;
    problem.blocks[1].held_inputs = {0, 2};
    for (Storage& storage : problem.tapes[0].storages) storage.sampled_bytes = {storage.bytes, 3};
    for (size_t i = 0; i < problem.tapes[0].ops.size(); ++i)
      problem.tapes[0].forward_slack_bytes.push_back(static_cast<int64_t>(i));
    problem.headroom = {.block_bytes = 1, .head_bytes = 2, .optimizer_bytes = 3};
    problem.host_bytes_limit = 17;
    problem.host_bytes_per_second = 1e9 / 3;
    const auto again = ParseProblem(PrintProblem(problem));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(ToProto(problem), ToProto(*again)));
    EXPECT_EQ(PrintProblem(*again), PrintProblem(problem));
  }
}

TEST(ProblemIoTest, NamesWhatCannotBeRead) {
  const auto error = [](const std::string& from, const std::string& to) {
    std::string json = kSmall;
    json.replace(json.find(from), from.size(), to);
    const auto problem = ParseProblem(json);
    EXPECT_EQ(problem.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(problem.status().message());
  };
  EXPECT_THAT(error("\"bytes\": \"16\"", "\"bytes\": \"many\""), HasSubstr("storages[1].bytes"));
  EXPECT_THAT(error("\"bytes\": \"16\"", "\"bytes\": 1e30"), HasSubstr("storages[1].bytes"));
  EXPECT_THAT(error("\"cost_seconds\": 2", "\"cost_seconds\": \"soon\""), HasSubstr("ops[1].cost_seconds"));
  EXPECT_THAT(error("\"consumed\"", "\"consumned\""), HasSubstr("consumned"));
  EXPECT_THAT(error("KIND_BLOCK_INPUT", "KIND_OTHER"), HasSubstr("KIND_OTHER"));
}

TEST(ProblemIoTest, NamesTheFile) {
  EXPECT_EQ(ReadProblemFile("no/such/file.json").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(ReadProblemFile("no/such/file.json").status().message()),
              HasSubstr("no/such/file.json: cannot be opened"));
  const std::string path = ::testing::TempDir() + "/truncated.json", whole = kSmall;
  std::ofstream(path) << whole.substr(0, whole.size() / 2);
  const auto problem = ReadProblemFile(path);
  EXPECT_EQ(problem.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(problem.status().message()), HasSubstr("truncated.json: not a planning problem"));
  std::ofstream(path) << whole;
  EXPECT_TRUE(ReadProblemFile(path).ok());
}

// The quick reader takes none of them.
TEST(ProblemIoTest, ReadsLongZeros) {
  const auto problem = ParseProblem(
      R"({"host_bytes_per_second": 0e-96, "tapes": [{"ops": [{"cost_seconds": 0.0e-300}, {"cost_seconds": 0.00000000000000000000000000000000}]}]})");
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(problem->host_bytes_per_second, 0);
  EXPECT_EQ(problem->tapes[0].ops[0].cost_seconds, 0);
  EXPECT_EQ(problem->tapes[0].ops[1].cost_seconds, 0);
}

// Whatever a file holds, reading and solving it ends with a plan or a message.
TEST(ProblemIoTest, SurvivesMutatedFiles) {
  int read = 0, solved = 0;
  for (int seed = 0; seed < 4000; ++seed) {
    std::mt19937_64 random(seed);
    PlanningProblem original = RandomProblem(random, 2, 4);
    original.memory_limit_bytes = random() % 100;
    std::string json = PrintProblem(original);
    for (int change = random() % 4; change >= 0; --change) {
      const size_t at = random() % json.size();
      static const std::vector<std::string> kPieces{"-", "9", "99999999999", "1e308", "\"NaN\"", "-1",   "0",
                                                    "}", "]", "[",           ",",     "{}",      "null", "\xff"};
      switch (random() % 12) {
        case 0:
          json[at] = static_cast<char>(random());
          break;
        case 1:
          json.erase(at, 1 + random() % 20);
          break;
        case 2:
          json.insert(at, kPieces[random() % kPieces.size()]);
          break;
        default: {
          // A number for a number, so that many files stay readable.
          const size_t digit = json.find_first_of("0123456789", at);
          if (digit != std::string::npos) json.replace(digit, 1, std::to_string(static_cast<int>(random() % 12) - 2));
        }
      }
      if (json.empty()) json = "{";
    }
    const auto problem = ParseProblem(json);
    if (!problem.ok()) {
      EXPECT_FALSE(problem.status().message().empty());
      continue;
    }
    ++read;
    const auto plan = PlanStep(*problem);
    if (!plan.ok()) {
      EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    ++solved;
    EXPECT_TRUE(!plan->feasible || problem->memory_limit_bytes == 0 || plan->step_peak_bytes <= problem->memory_limit_bytes);
    EXPECT_TRUE(StepFrontier(*problem).ok());
  }
  EXPECT_GT(read, 500);
  EXPECT_GT(solved, 200);
}

TEST(PlanProtoTest, NamesSavedStoragesBySite) {
  PlanningProblem problem = *ParseProblem(kSmall);
  problem.tapes[0].storages[2].held_anyway = false;
  const auto evaluated = EvaluatePlan(problem, {{1}});
  ASSERT_TRUE(evaluated.ok()) << evaluated.status();
  const v1::Plan plan = ToProto(problem, *evaluated);
  ASSERT_EQ(plan.blocks_size(), 1);
  const v1::BlockPlan& block = plan.blocks(0);
  EXPECT_EQ(block.name(), "layers.0");
  EXPECT_EQ(block.structure_hash(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(block.default_action(), v1::ACTION_REPLAY);
  ASSERT_EQ(block.sites_size(), 1);
  EXPECT_EQ(block.sites(0).site(), 7u);
  EXPECT_EQ(block.sites(0).action(), v1::ACTION_SAVE);
  EXPECT_EQ(block.saved_bytes(), 16);
  EXPECT_EQ(block.replay_seconds(), 2);
  EXPECT_EQ(block.replayed(0), 1);
  EXPECT_EQ(block.option(), -1);
  EXPECT_EQ(plan.step_peak_bytes(), evaluated->step_peak_bytes);
  EXPECT_TRUE(plan.feasible());
  EXPECT_EQ(plan.peak_holder().phase(), v1::PeakHolder::PHASE_BACKWARD);
  EXPECT_EQ(plan.peak_holder().name(), "layers.0");
}

TEST(PlanProtoTest, KeepsByDefaultWithoutALimit) {
  PlanningProblem problem = *ParseProblem(kSmall);
  problem.memory_limit_bytes = kUnlimitedBytes;
  problem.tapes[0].storages[2].must_recompute = true;
  const v1::Plan plan = ToProto(problem, *PlanStep(problem));
  EXPECT_EQ(plan.blocks(0).default_action(), v1::ACTION_SAVE);
  ASSERT_EQ(plan.blocks(0).sites_size(), 1);
  EXPECT_EQ(plan.blocks(0).sites(0).site(), 9u);
  EXPECT_EQ(plan.blocks(0).sites(0).action(), v1::ACTION_REPLAY);
}

TEST(PlanProtoTest, NamesTheOptionOfABlockWithoutATape) {
  PlanningProblem problem = *ParseProblem(kSmall);
  problem.blocks[0].options = {{.saved_bytes = 1, .seconds = 0.5, .label = "lean"}, {.saved_bytes = 2, .label = "fast"}};
  problem.memory_limit_bytes = kUnlimitedBytes;
  const v1::BlockPlan block = ToProto(problem, *PlanStep(problem)).blocks(0);
  EXPECT_EQ(block.option(), 1);
  EXPECT_EQ(block.option_label(), "fast");
  // Agents refuse a block without one.
  EXPECT_EQ(block.default_action(), v1::ACTION_SAVE);
}

TEST(PlanJsonTest, PrintsNumbersAsNumbers) {
  StepPlan plan;
  plan.blocks = {{.saved = {1, 4}, .replayed = {0}, .saved_bytes = int64_t{1} << 60, .replay_seconds = 0.1, .own_peak_bytes = 7},
                 {.option = 2}};
  plan.step_peak_bytes = 9;
  plan.expected_peak_bytes = 9;
  plan.replay_seconds = 1e-7;
  plan.gap_ratio = std::numeric_limits<double>::infinity();
  EXPECT_EQ(StepPlanJson(plan), R"({
  "blocks": [
    {"saved": [1, 4], "replayed": [0], "moved": [], "saved_bytes": 1152921504606846976, "replay_seconds": 0.1, "own_peak_bytes": 7},
    {"saved": [], "replayed": [], "moved": [], "saved_bytes": 0, "replay_seconds": 0, "own_peak_bytes": 0, "option": 2}
  ],
  "step_peak_bytes": 9,
  "replay_seconds": 1e-07,
  "lower_bound_seconds": 0,
  "gap_ratio": null,
  "feasible": true
}
)");
  plan.expected_peak_bytes = 7;
  EXPECT_THAT(StepPlanJson(plan), HasSubstr("\"step_peak_bytes\": 7,\n  \"headroom_bytes\": 2,\n"));
  EXPECT_EQ(BlockFrontierJson({{30, 0, {2, 1}}, {0, 2.5, {}}}), R"([
  {"saved_bytes": 30, "replay_seconds": 0, "saved": [2, 1]},
  {"saved_bytes": 0, "replay_seconds": 2.5, "saved": []}
]
)");
  EXPECT_EQ(BlockFrontierJson({}), "[]\n");
}

}  // namespace
}  // namespace tidetape::planner
