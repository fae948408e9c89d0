#include "server/ctl/simulate_collectives.h"

#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/ctl/machine_file.h"

namespace tidetape::ctl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParseGpusTest, TakesNumbersListsAndRanges) {
  EXPECT_THAT(*ParseGpus("64"), ElementsAre(64));
  EXPECT_THAT(*ParseGpus("8,24,4096"), ElementsAre(8, 24, 4096));
  EXPECT_THAT(*ParseGpus("8..64"), ElementsAre(8, 16, 32, 64));
  EXPECT_THAT(*ParseGpus("12..40"), ElementsAre(12, 24));
  for (const char* wrong : {"", "8..", "0", "-8", "64..8", "8,,16", "65537", "many"}) {
    EXPECT_EQ(ParseGpus(wrong).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
}

TEST(MachineFileTest, ReadsWhatIsThereAndKeepsTheRest) {
  const collectives::Machine defaults = collectives::H100Machine();
  const auto machine = ParseMachine(
      R"({"network": {"bytes_per_second": 2.5e9, "multicast": false}, "local": {"sender_copies": true, "takes_processor": true},
          "step_seconds": 0, "processors": 2})",
      defaults);
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_EQ(machine->network.bytes_per_second, 2.5e9);
  EXPECT_EQ(machine->network.latency_seconds, defaults.network.latency_seconds);
  EXPECT_TRUE(machine->local.sender_copies);
  EXPECT_TRUE(machine->local.takes_processor);
  EXPECT_EQ(machine->processors, 2);
  EXPECT_EQ(machine->step_seconds, 0);
}

TEST(MachineFileTest, NamesWhatIsWrong) {
  const auto message = [](const std::string& json) {
    return std::string(ParseMachine(json, collectives::H100Machine()).status().message());
  };
  EXPECT_THAT(message(R"({"network": {"speed": 1}})"), HasSubstr("\"network.speed\" is unknown"));
  EXPECT_THAT(message(R"({"lokal": {}})"), HasSubstr("\"lokal\" is unknown"));
  EXPECT_THAT(message(R"({"local": {"bytes_per_second": 0}})"), HasSubstr("must be above 0"));
  EXPECT_THAT(message(R"({"local": {"latency_seconds": -1}})"),
              HasSubstr("\"local.latency_seconds\" must be finite and not negative"));
  EXPECT_THAT(message(R"({"step_seconds": "1"})"), HasSubstr("must be a number"));
  EXPECT_THAT(message(R"({"local": {"multicast": 1}})"), HasSubstr("must be true or false"));
  EXPECT_THAT(message(R"({"processors": 1.5})"), HasSubstr("must be a whole number"));
  EXPECT_THAT(message("[1"), HasSubstr("not a JSON object"));
  EXPECT_EQ(ReadMachineFile("/no/such/file", collectives::H100Machine()).status().code(), absl::StatusCode::kNotFound);
}

TEST(SimulateCollectivesTest, PrintsTheTableAndItsAssumptions) {
  SimulateCollectivesArguments arguments;
  arguments.gpus = "64";
  std::ostringstream out;
  const absl::Status status = SimulateCollectives(arguments, OutputFormat{}, out);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(out.str(), AllOf(HasSubstr("llama-3.1-70b, 70.55 billion parameters, 8 ranks a node"), HasSubstr("64    stock"),
                               HasSubstr("64    symm-mem"), HasSubstr("64    tidetape"), HasSubstr("Assumptions:"),
                               HasSubstr("between nodes: 50 GB/s")));
}

TEST(SimulateCollectivesTest, PrintsJson) {
  SimulateCollectivesArguments arguments;
  arguments.gpus = "8,16";
  arguments.model = "qwen3-30b-a3b";
  std::ostringstream out;
  const absl::Status status = SimulateCollectives(arguments, OutputFormat{OutputFormat::kJson}, out);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(out.str(), AllOf(HasSubstr("\"scheme\": \"tidetape\""), HasSubstr("\"gpus\": 16"), HasSubstr("\"over_stock\": 1,")));
}

TEST(SimulateCollectivesTest, NamesAWrongModel) {
  SimulateCollectivesArguments arguments;
  arguments.model = "llama";
  std::ostringstream out;
  EXPECT_THAT(std::string(SimulateCollectives(arguments, OutputFormat{}, out).message()), HasSubstr("llama-3.1-70b"));
}

}  // namespace
}  // namespace tidetape::ctl
