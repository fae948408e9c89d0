#include "server/messages/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"

namespace tidetape::server {
namespace {

using testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

v1::Hello GoodHello() {
  v1::Hello hello;
  hello.set_job("run-7");
  hello.set_incarnation("a1");
  hello.set_rank(1);
  hello.set_world_size(2);
  return hello;
}

v1::StepReport GoodReport() {
  v1::StepReport report;
  report.set_step(12);
  report.set_step_seconds(0.5);
  report.mutable_profile()->add_blocks()->mutable_instance()->add_options()->set_label("lean");
  report.add_costs()->add_cost_seconds(-1);
  report.mutable_costs(0)->add_replay_workspace_bytes(0);
  return report;
}

v1::BlockTape GoodTape() {
  v1::BlockTape tape;
  tape.set_name("layers.0");
  tape.add_storages()->set_kind(v1::Storage::KIND_BLOCK_INPUT);
  tape.add_storages()->set_kind(v1::Storage::KIND_INTERMEDIATE);
  tape.add_ops()->add_reads(0);
  tape.mutable_ops(0)->add_writes(1);
  tape.add_consumed(1);
  tape.add_values();
  tape.add_backward()->add_reads(1);
  return tape;
}

TEST(ValidateHello, TakesAGoodOne) { EXPECT_TRUE(ValidateHello(GoodHello()).ok()); }

TEST(ValidateHello, RefusesWhatCannotBe) {
  const std::vector<std::pair<std::function<void(v1::Hello&)>, std::string>> cases = {
      {[](v1::Hello& hello) { hello.clear_job(); }, "job"},
      {[](v1::Hello& hello) { hello.set_job("a b"); }, "job"},
      {[](v1::Hello& hello) { hello.set_job("a\nb"); }, "job"},
      {[](v1::Hello& hello) { hello.set_job(std::string(257, 'x')); }, "job"},
      {[](v1::Hello& hello) { hello.clear_incarnation(); }, "incarnation"},
      {[](v1::Hello& hello) { hello.set_world_size(0); }, "world_size"},
      {[](v1::Hello& hello) { hello.set_world_size(std::numeric_limits<int32_t>::min()); }, "world_size"},
      {[](v1::Hello& hello) { hello.set_rank(2); }, "rank"},
      {[](v1::Hello& hello) { hello.set_rank(-1); }, "rank"},
      {[](v1::Hello& hello) { hello.set_memory_limit_bytes(-2); }, "memory_limit_bytes"},
      {[](v1::Hello& hello) { hello.set_held_generation(-1); }, "held_generation"},
      {[](v1::Hello& hello) { hello.set_active_generation(INT64_MAX); }, "active_generation"},
  };
  for (const auto& [change, field] : cases) {
    v1::Hello hello = GoodHello();
    change(hello);
    const absl::Status status = ValidateHello(hello);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << field;
    EXPECT_THAT(std::string(status.message()), HasSubstr(field));
  }
}

TEST(ValidateReport, TakesAGoodOneAndUnmeasuredCosts) { EXPECT_TRUE(ValidateReport({"run-7", 1}, GoodReport()).ok()); }

TEST(ValidateReport, NamesJobRankStepAndField) {
  const std::vector<std::pair<std::function<void(v1::StepReport&)>, std::string>> cases = {
      {[](v1::StepReport& r) { r.set_generation(-1); }, "generation"},
      {[](v1::StepReport& r) { r.set_step_seconds(kNan); }, "step_seconds"},
      {[](v1::StepReport& r) { r.set_step_seconds(kInfinity); }, "step_seconds"},
      {[](v1::StepReport& r) { r.set_step_peak_bytes(-1); }, "step_peak_bytes"},
      {[](v1::StepReport& r) { r.set_saved_bytes(-1); }, "saved_bytes"},
      {[](v1::StepReport& r) { r.set_replay_seconds(-0.1); }, "replay_seconds"},
      {[](v1::StepReport& r) { r.set_replayed_ops(-1); }, "replayed_ops"},
      {[](v1::StepReport& r) { r.set_demoted_ops(-1); }, "demoted_ops"},
      {[](v1::StepReport& r) { r.set_agent_seconds(kNan); }, "agent_seconds"},
      {[](v1::StepReport& r) { r.add_live_bytes(-1); }, "live_bytes[0]"},
      {[](v1::StepReport& r) { r.mutable_profile()->set_head_peak_bytes(-1); }, "profile.head_peak_bytes"},
      {[](v1::StepReport& r) { r.mutable_profile()->set_optimizer_peak_bytes(-1); }, "profile.optimizer_peak_bytes"},
      {[](v1::StepReport& r) { r.mutable_profile()->set_host_bytes_limit(-1); }, "profile.host_bytes_limit"},
      {[](v1::StepReport& r) { r.mutable_profile()->set_host_bytes_per_second(kNan); }, "profile.host_bytes_per_second"},
      {[](v1::StepReport& r) { r.mutable_profile()->add_schedule()->set_block(-1); }, "profile.schedule[0]"},
      {[](v1::StepReport& r) { r.mutable_profile()->clear_blocks(); }, "profile.blocks"},
      {[](v1::StepReport& r) { r.mutable_profile()->mutable_blocks(0)->mutable_instance()->set_forward_base_bytes(-1); },
       "profile.blocks[0].forward_base_bytes"},
      {[](v1::StepReport& r) { r.mutable_profile()->mutable_blocks(0)->mutable_instance()->add_start_live_bytes(-1); },
       "profile.blocks[0].start_live_bytes[0]"},
      {[](v1::StepReport& r) { r.mutable_profile()->mutable_blocks(0)->mutable_instance()->mutable_options(0)->set_seconds(kNan); },
       "profile.blocks[0].options[0].seconds"},
      {[](v1::StepReport& r) { r.mutable_profile()->mutable_blocks(0)->mutable_instance()->mutable_options(0)->clear_label(); },
       "profile.blocks[0].options[0].label must have"},
      {[](v1::StepReport& r) { r.mutable_profile()->mutable_blocks(0)->mutable_instance()->add_options()->set_label("lean"); },
       "profile.blocks[0].options[1].label is 'lean', as that of an option before it"},
      {[](v1::StepReport& r) {
         for (int i = 0; i < 64; ++i)
           r.mutable_profile()->mutable_blocks(0)->mutable_instance()->add_options()->set_label(absl::StrCat(i));
       },
       "profile.blocks[0].options has more than 64 entries"},
      {[](v1::StepReport& r) { r.mutable_costs(0)->set_cost_seconds(0, kNan); }, "costs[0].cost_seconds[0]"},
      {[](v1::StepReport& r) { r.mutable_costs(0)->set_cost_seconds(0, -kInfinity); }, "costs[0].cost_seconds[0]"},
      {[](v1::StepReport& r) { r.mutable_costs(0)->set_replay_workspace_bytes(0, -1); }, "costs[0].replay_workspace_bytes[0]"},
      {[](v1::StepReport& r) { r.mutable_costs(0)->add_cost_seconds(0); }, "costs[0] has 2 cost_seconds and 1"},
  };
  for (const auto& [change, field] : cases) {
    v1::StepReport report = GoodReport();
    change(report);
    const absl::Status status = ValidateReport({"run-7", 1}, report);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << field;
    EXPECT_THAT(std::string(status.message()), HasSubstr("job 'run-7', rank 1, step 12: " + field));
  }
}

TEST(ValidateTape, TakesAGoodOne) { EXPECT_TRUE(ValidateTape({"run-7", 0}, GoodTape()).ok()); }

TEST(ValidateTape, RefusesWhatCannotBe) {
  const std::vector<std::pair<std::function<void(v1::BlockTape&)>, std::string>> cases = {
      {[](v1::BlockTape& t) { t.mutable_storages(0)->set_bytes(-1); }, "storages[0].bytes"},
      {[](v1::BlockTape& t) { t.mutable_storages(1)->clear_kind(); }, "storages[1].kind"},
      {[](v1::BlockTape& t) { t.mutable_ops(0)->set_cost_seconds(kNan); }, "ops[0].cost_seconds"},
      {[](v1::BlockTape& t) { t.mutable_ops(0)->set_cost_seconds(-1); }, "ops[0].cost_seconds"},
      {[](v1::BlockTape& t) { t.mutable_ops(0)->add_reads(2); }, "ops[0].reads[1]"},
      {[](v1::BlockTape& t) { t.mutable_ops(0)->add_writes(-1); }, "ops[0].writes[1]"},
      {[](v1::BlockTape& t) { t.add_consumed(9); }, "consumed[1]"},
      {[](v1::BlockTape& t) { t.mutable_values(0)->set_storage(2); }, "values[0].storage"},
      {[](v1::BlockTape& t) { t.mutable_values(0)->set_copy_seconds(kInfinity); }, "values[0].copy_seconds"},
      {[](v1::BlockTape& t) { t.mutable_backward(0)->add_releases(5); }, "backward[0].releases[0]"},
      {[](v1::BlockTape& t) { t.mutable_backward(0)->set_gradient_live_bytes(-1); }, "backward[0].gradient_live_bytes"},
  };
  for (const auto& [change, field] : cases) {
    v1::BlockTape tape = GoodTape();
    change(tape);
    const absl::Status status = ValidateTape({"run-7", 0}, tape);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << field;
    EXPECT_THAT(std::string(status.message()), HasSubstr(field));
    EXPECT_THAT(std::string(status.message()), HasSubstr("'layers.0'"));
  }
}

TEST(ValidateConstraints, PinsNeedAGlobAndAnAction) {
  v1::Constraints constraints;
  EXPECT_TRUE(ValidateConstraints("run-7", constraints).ok());
  constraints.set_memory_limit_bytes(-1);
  v1::Pin* pin = constraints.add_pins();
  pin->set_block_glob("*");
  pin->set_action(v1::ACTION_SAVE);
  EXPECT_TRUE(ValidateConstraints("run-7", constraints).ok());
  pin->set_action(v1::ACTION_MOVE);
  EXPECT_TRUE(absl::IsInvalidArgument(ValidateConstraints("run-7", constraints)));
  pin->set_action(v1::ACTION_SAVE);
  pin->clear_block_glob();
  EXPECT_TRUE(absl::IsInvalidArgument(ValidateConstraints("run-7", constraints)));
  constraints.clear_pins();
  constraints.set_memory_limit_bytes(-2);
  EXPECT_TRUE(absl::IsInvalidArgument(ValidateConstraints("run-7", constraints)));
}

}  // namespace
}  // namespace tidetape::server
