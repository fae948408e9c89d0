#include "planner/io/plain_json.h"

#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>

#include <random>
#include <string>

#include "gtest/gtest.h"
#include "planner/io/problem_io.h"
#include "planner/testing/random_tape.h"
#include "tidetape/v1/tape.pb.h"

namespace tidetape::planner {
namespace {

using google::protobuf::util::MessageDifferencer;

bool ReadByProtobuf(const std::string& json, v1::PlanningProblem& message) {
  return google::protobuf::util::JsonStringToMessage(json, &message).ok();
}

TEST(PlainJsonTest, ReadsWhatProtobufWrites) {
  for (int seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    PlanningProblem problem = RandomProblem(random, 3, 6);
    problem.tapes[0].structure_hash = random();
    problem.tapes[0].name = "\"quoted\" \\ \t caf\u00e9";
    problem.host_bytes_per_second = 1e300 / 7;
    const v1::PlanningProblem expected = ToProto(problem);
    for (const bool proto_names : {false, true}) {
      google::protobuf::util::JsonPrintOptions options;
      options.preserve_proto_field_names = proto_names;
      options.always_print_primitive_fields = seed % 2 == 0;
      std::string json;
      ASSERT_TRUE(google::protobuf::util::MessageToJsonString(expected, &json, options).ok());
      v1::PlanningProblem read;
      ASSERT_TRUE(ReadPlainJson(json, read));
      EXPECT_TRUE(MessageDifferencer::Equals(read, expected));
    }
  }
}

// What is wrong or merely unusual is left to protobuf's reader; what is taken means the same to both.
TEST(PlainJsonTest, TakesNothingThatProtobufReadsInAnotherWay) {
  const struct {
    const char* json;
    bool taken;
  } cases[] = {
      {R"({})", true},
      {R"({"memory_limit_bytes": 7, "head_peak_bytes": "-9223372036854775808"})", true},
      {R"({"memoryLimitBytes": "9223372036854775807", "host_bytes_per_second": 3})", true},
      {R"({"tapes": [{"structure_hash": "18446744073709551615", "consumed": [2147483647]}]})", true},
      {R"({"tapes": [{"structure_hash": 18446744073709551615}]})", true},
      {R"({"host_bytes_per_second": 4.9e-324})", true},
      {R"({"memory_limit_bytes": 9223372036854775808})", false},
      {R"({"memory_limit_bytes": "9223372036854775808"})", false},
      {R"({"memory_limit_bytes": 1.5})", false},
      {R"({"memory_limit_bytes": 1e3})", false},
      {R"({"memory_limit_bytes": " 1"})", false},
      {R"({"memory_limit_bytes": ""})", false},
      {R"({"memory_limit_bytes": "0x10"})", false},
      {R"({"memory_limit_bytes": null})", false},
      {R"({"memory_limit_bytes": true})", false},
      {R"({"memory_limit_bytes": [1]})", false},
      {R"({"memory_limit_bytes": 1, "memory_limit_bytes": 2})", false},
      {R"({"memory_limit_bytes": 1, "memoryLimitBytes": 2})", false},
      {R"({"host_bytes_per_second": "NaN"})", false},
      {R"({"host_bytes_per_second": NaN})", false},
      {R"({"host_bytes_per_second": 1e999})", false},
      {R"({"host_bytes_per_second": 9007199254740993})", false},
      {R"({"tapes": [{"consumed": [2147483648]}]})", false},
      {R"({"tapes": [{"consumed": 1}]})", false},
      {R"({"tapes": [{"structure_hash": -1}]})", false},
      {R"({"tapes": [{"storages": [{"kind": "KIND_NONE"}]}]})", false},
      {R"({"tapes": [{"storages": [{"kind": 1}]}]})", false},
      {R"({"tapes": [{"storages": [{"must_save": "true"}]}]})", false},
      {R"({"tapes": {}})", false},
      {R"({"tapes": [null]})", false},
      {R"({"colour": 1})", false},
      {R"({"memory_limit_bytes": 1,})", false},
      {R"({"memory_limit_bytes": 1} {})", false},
      {"{\"tapes\": [{\"name\": \"\xff\"}]}", false},
      {R"({"tapes": [{"name": "\ud800"}]})", false},
      {R"({"host_bytes_per_second": 0e-96})", false},
      {R"({"host_bytes_per_second": 0.0E-300})", false},
      {R"({"host_bytes_per_second": 0.000000000000000000000000000000})", false},
      {R"({"host_bytes_per_second": 0.0, "head_peak_bytes": 10000000000})", true},
      {R"({"host_bytes_per_second": 0.0000000000000000000000000000001})", true},
      {R"({"host_bytes_per_second": 1.50e10})", true},
      {R"({"host_bytes_per_second": 100e-3})", true},
      {"[]", false},
      {"null", false},
      {"", false},
  };
  for (const auto& [json, taken] : cases) {
    v1::PlanningProblem read, expected;
    EXPECT_EQ(ReadPlainJson(json, read), taken) << json;
    if (!taken) continue;
    ASSERT_TRUE(ReadByProtobuf(json, expected)) << json;
    EXPECT_TRUE(MessageDifferencer::Equals(read, expected)) << json;
  }
  v1::PlanningProblem read;
  EXPECT_FALSE(ReadPlainJson(std::string("{}\0[", 4), read));
  EXPECT_FALSE(ReadPlainJson(std::string(1'000'000, '['), read));
}

}  // namespace
}  // namespace tidetape::planner
