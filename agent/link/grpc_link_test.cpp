// The link against a server in this process, over loopback, through the C interface.
#include "agent/link/grpc_link.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "agent/link/testing/borrowed.h"
#include "agent/link/testing/fake_server.h"
#include "agent/link/testing/small_job.h"
#include "planner/io/problem_io.h"

namespace tidetape::link {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StrEq;
using Requests = std::vector<v1::ConnectRequest>;

class GrpcLinkTest : public ::testing::Test {
 protected:
  ~GrpcLinkTest() override { tt_link_close(link_, 0); }

  void StartServer(FakeServer::Behaviour behaviour = {}) {
    server_ = std::make_unique<FakeServer>(std::move(behaviour), port_);
    ASSERT_TRUE(server_->listening()) << "port " << port_;
    port_ = server_->port();
  }

  void Open() {
    address_ = "127.0.0.1:" + std::to_string(port_);
    const tt_link_options options = MakeOptions(address_.c_str(), 5000);
    char error[256] = "";
    link_ = tt_link_open(&options, error, sizeof(error));
    ASSERT_NE(link_, nullptr) << error;
  }

  tt_link_status PutTape(const planner::BlockTape& tape) {
    BorrowedTape borrowed(tape);
    return tt_link_put_tape(link_, &borrowed.tape());
  }

  tt_link_status Report(int64_t step, const planner::MemoryProfile* profile = nullptr,
                        const std::vector<planner::TapeCosts>& costs = {}, const std::vector<int64_t>& live_bytes = {}) {
    BorrowedReport borrowed(step, profile, costs);
    borrowed.report().live_bytes = live_bytes.data();
    borrowed.report().num_live_bytes = live_bytes.size();
    return tt_link_report_step(link_, &borrowed.report());
  }

  tt_link_state_info State() {
    tt_link_state_info state = {};
    EXPECT_EQ(tt_link_state(link_, &state), TT_LINK_OK);
    return state;
  }

  // Waits for a condition on the link; false after a long time.
  template <typename Condition>
  static bool Await(Condition condition) {
    for (int i = 0; i < 12000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  static v1::ConnectResponse Plan(int64_t generation) {
    v1::ConnectResponse response;
    v1::Plan* plan = response.mutable_plan();
    plan->set_job("job");
    plan->set_incarnation("first");
    plan->set_generation(generation);
    plan->set_etag("etag" + std::to_string(generation));
    v1::BlockPlan* block = plan->add_blocks();
    block->set_name("layers.0");
    block->set_default_action(v1::ACTION_REPLAY);
    return response;
  }

  static std::vector<int64_t> Steps(const Requests& requests) {
    std::vector<int64_t> steps;
    for (const v1::ConnectRequest& request : requests) {
      if (request.has_step_report()) steps.push_back(request.step_report().step());
    }
    return steps;
  }

  int port_ = 0;
  std::string address_;
  std::unique_ptr<FakeServer> server_;
  tt_link* link_ = nullptr;
};

TEST_F(GrpcLinkTest, TapesReportsAndPlansTravel) {
  StartServer();
  Open();
  planner::BlockTape large = SmallTape(1, std::vector<int64_t>(24000, 8), std::vector<double>(24000, 1e-3));
  for (planner::Storage& storage : large.storages) storage.label = std::string(200, 'x');
  for (planner::Storage& storage : large.storages) storage.sampled_bytes = {8, 0, 9};
  large.forward_slack_bytes.assign(large.ops.size(), 5);
  const std::string bytes = planner::ToProto(large).SerializeAsString();
  ASSERT_GT(bytes.size(), size_t{4} << 20);
  ASSERT_EQ(PutTape(large), TT_LINK_OK);
  planner::MemoryProfile profile = SmallProfile({1}, 100);
  profile.headroom = {.block_bytes = 4, .head_bytes = 5, .optimizer_bytes = 6};
  profile.host_bytes_limit = 1000;
  profile.host_bytes_per_second = 2.5;
  profile.blocks[0].held_inputs = {~uint64_t{0}, 7};
  profile.schedule = {{planner::Phase::kForward, 0}, {planner::Phase::kHead}, {planner::Phase::kBackward, 0}};
  ASSERT_EQ(Report(17, &profile), TT_LINK_OK);

  v1::ConnectRequest found;
  ASSERT_TRUE(server_->AwaitKind(v1::ConnectRequest::kStepReport, &found));
  EXPECT_EQ(found.step_report().step(), 17);
  EXPECT_EQ(found.step_report().profile().blocks(0).structure_hash(), 1u);
  EXPECT_EQ(found.step_report().profile().blocks(0).instance().name(), "layers.0");
  EXPECT_EQ(found.step_report().profile().head_peak_bytes(), 100);
  EXPECT_EQ(found.step_report().profile().headroom().block_bytes(), 4);
  EXPECT_EQ(found.step_report().profile().headroom().head_bytes(), 5);
  EXPECT_EQ(found.step_report().profile().headroom().optimizer_bytes(), 6);
  EXPECT_EQ(found.step_report().profile().host_bytes_limit(), 1000);
  EXPECT_EQ(found.step_report().profile().host_bytes_per_second(), 2.5);
  EXPECT_THAT(found.step_report().profile().blocks(0).held_inputs(), testing::ElementsAre(~uint64_t{0}, 7));
  ASSERT_EQ(found.step_report().profile().schedule_size(), 3);
  EXPECT_EQ(found.step_report().profile().schedule(0).phase(), v1::ScheduledPart::PHASE_FORWARD);
  EXPECT_EQ(found.step_report().profile().schedule(1).phase(), v1::ScheduledPart::PHASE_HEAD);
  EXPECT_EQ(found.step_report().profile().schedule(2).phase(), v1::ScheduledPart::PHASE_BACKWARD);
  EXPECT_EQ(server_->tape(1), bytes);  // before the report that names it
  const Requests requests = server_->requests();
  EXPECT_TRUE(requests.front().has_hello());
  EXPECT_EQ(requests.front().hello().memory_limit_bytes(), 5000);
  EXPECT_EQ(requests.front().hello().pid(), getpid());
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(requests[i].sequence(), static_cast<int64_t>(i) + 1);

  EXPECT_EQ(tt_link_take_plan(link_, 0), nullptr);
  server_->Send(Plan(1));
  ASSERT_TRUE(server_->AwaitKind(v1::ConnectRequest::kPlanHeld, &found));
  EXPECT_EQ(found.plan_held().generation(), 1);
  const tt_plan* plan = tt_link_take_plan(link_, 0);
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->generation, 1);
  EXPECT_THAT(plan->etag, StrEq("etag1"));
  tt_link_release_plan(plan);
  ASSERT_EQ(tt_link_plan_activated(link_, 1, 20), TT_LINK_OK);
  ASSERT_TRUE(server_->AwaitKind(v1::ConnectRequest::kPlanActivated, &found));
  EXPECT_EQ(found.plan_activated().step(), 20);

  // One plan behind the other: only the newest matters.
  server_->Send(Plan(2));
  server_->Send(Plan(3));
  ASSERT_TRUE(Await([&] { return State().plans_received == 3; }));
  plan = tt_link_take_plan(link_, 1);
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->generation, 3);
  tt_link_release_plan(plan);
  EXPECT_EQ(State().connected, 1);
  EXPECT_THAT(State().last_error, StrEq(""));
  EXPECT_EQ(State().reports_sent, 1);
}

TEST_F(GrpcLinkTest, AServerThatStartsLateIsFound) {
  StartServer();
  server_ = nullptr;
  Open();
  ASSERT_TRUE(Await([&] { return std::string(State().last_error).find("ended: ") != std::string::npos; }));
  EXPECT_EQ(State().connected, 0);
  EXPECT_THAT(State().last_error, HasSubstr(address_));
  ASSERT_EQ(PutTape(SmallTape(1, {8}, {0})), TT_LINK_OK);
  ASSERT_EQ(Report(0), TT_LINK_OK);
  StartServer();
  v1::ConnectRequest found;
  ASSERT_TRUE(server_->AwaitKind(v1::ConnectRequest::kStepReport, &found));
  EXPECT_NE(server_->tape(1), "");
  EXPECT_EQ(State().reconnects, 0);
}

TEST_F(GrpcLinkTest, ARestartedServerGetsEverythingAgain) {
  StartServer();
  Open();
  ASSERT_EQ(PutTape(SmallTape(1, {8}, {0.5})), TT_LINK_OK);
  ASSERT_EQ(PutTape(SmallTape(2, {8}, {0.5})), TT_LINK_OK);
  const planner::MemoryProfile profile = SmallProfile({1, 2}, 100);
  ASSERT_EQ(Report(5, &profile, {{1, {0.25}, {3}}}), TT_LINK_OK);
  ASSERT_EQ(Report(6), TT_LINK_OK);
  ASSERT_TRUE(server_->Await([](const Requests& requests) { return Steps(requests).size() == 2; }));
  server_->Send(Plan(4));
  ASSERT_TRUE(Await([&] { return State().plans_received == 1; }));
  ASSERT_EQ(tt_link_plan_activated(link_, 4, 6), TT_LINK_OK);

  for (int restart = 1; restart <= 3; ++restart) {
    server_ = nullptr;
    ASSERT_TRUE(Await([&] { return State().connected == 0; }));
    const int64_t step = 6 + restart;
    ASSERT_EQ(Report(step), TT_LINK_OK);
    StartServer();
    ASSERT_TRUE(server_->Await([&](const Requests& requests) { return !requests.empty() && Steps(requests).size() >= 2; }));
    const Requests requests = server_->requests();
    EXPECT_THAT(requests[0].hello().structure_hashes(), ElementsAre(1, 2));
    EXPECT_EQ(requests[0].hello().held_generation(), 4);
    EXPECT_EQ(requests[0].hello().active_generation(), 4);
    EXPECT_NE(server_->tape(1), "");
    EXPECT_NE(server_->tape(2), "");
    const std::vector<int64_t> steps = Steps(requests);
    EXPECT_EQ(steps.front(), 5);  // the newest with a profile
    EXPECT_EQ(steps.back(), step);
    for (const v1::ConnectRequest& request : requests) {
      if (!request.has_step_report() || request.step_report().step() != 5) continue;
      EXPECT_TRUE(request.step_report().has_profile());
      EXPECT_THAT(request.step_report().costs(0).cost_seconds(), ElementsAre(0.25));
    }
    ASSERT_TRUE(Await([&] { return State().reconnects == restart; }));
    EXPECT_THAT(State().last_error, StrEq(""));
  }
}

TEST_F(GrpcLinkTest, ADrainingServerIsLeftAndFoundAgain) {
  StartServer();
  Open();
  ASSERT_TRUE(Await([&] { return State().connected == 1; }));
  v1::ConnectResponse drain;
  drain.mutable_drain()->set_reconnect_after_seconds(0.3);
  server_->Send(drain);
  ASSERT_TRUE(Await([&] { return State().connected == 0; }));
  EXPECT_THAT(State().last_error, HasSubstr("about to stop"));
  ASSERT_EQ(Report(1), TT_LINK_OK);
  v1::ConnectRequest found;
  ASSERT_TRUE(server_->AwaitKind(v1::ConnectRequest::kStepReport, &found));
  EXPECT_EQ(server_->streams(), 2);
  EXPECT_EQ(State().reconnects, 1);
}

TEST_F(GrpcLinkTest, AServerThatDoesNotReadCostsReportsAndNothingElse) {
  FakeServer::Behaviour deaf;
  deaf.read = false;
  deaf.acknowledge = false;
  StartServer(deaf);
  Open();
  ASSERT_TRUE(Await([&] { return State().connected == 1; }));
  // 64 MiB of reports: far more than any window of the connection.
  const std::vector<int64_t> live_bytes(8192, int64_t{1} << 55);
  constexpr int kReports = 1000;
  int dropped = 0;
  for (int step = 0; step < kReports; ++step) {
    const tt_link_status status = Report(step, nullptr, {}, live_bytes);
    ASSERT_TRUE(status == TT_LINK_OK || status == TT_LINK_DROPPED_OLDEST);
    dropped += status == TT_LINK_DROPPED_OLDEST;
  }
  const tt_link_state_info state = State();
  EXPECT_EQ(state.reports_dropped, dropped);
  const int64_t capacity = static_cast<int64_t>(GrpcLink::Tuning().report_capacity);
  EXPECT_GE(state.reports_dropped, kReports - capacity - state.reports_sent);
  EXPECT_GT(state.reports_dropped, kReports / 2);
}

TEST_F(GrpcLinkTest, AServerThatNeverAcknowledgesGetsAllReports) {
  FakeServer::Behaviour mute;
  mute.acknowledge = false;
  StartServer(mute);
  Open();
  ASSERT_TRUE(Await([&] { return State().connected == 1; }));
  for (int step = 0; step < 300; ++step) {
    ASSERT_EQ(Report(step), TT_LINK_OK);
    if (step % 50 == 49) {
      ASSERT_TRUE(server_->Await([&](const Requests& requests) { return static_cast<int>(Steps(requests).size()) == step + 1; }));
    }
  }
  EXPECT_EQ(State().reports_sent, 300);
  EXPECT_EQ(State().reports_dropped, 0);
}

TEST_F(GrpcLinkTest, ASupersededIncarnationGivesUp) {
  FakeServer::Behaviour refusing;
  refusing.hello_status = grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "incarnation 'first' is superseded by 'second'");
  StartServer(refusing);
  Open();
  ASSERT_TRUE(Await([&] { return Report(1) == TT_LINK_CLOSED; }));
  EXPECT_THAT(State().last_error, HasSubstr("superseded by 'second'"));
  EXPECT_EQ(State().connected, 0);
  EXPECT_EQ(PutTape(SmallTape(1, {8}, {0})), TT_LINK_CLOSED);
  EXPECT_EQ(tt_link_plan_activated(link_, 1, 1), TT_LINK_CLOSED);
  EXPECT_EQ(tt_link_set_memory_limit(link_, 1), TT_LINK_CLOSED);
  EXPECT_EQ(tt_link_take_plan(link_, 0), nullptr);
  // Longer than the longest pause between attempts.
  std::this_thread::sleep_for(2 * Backoff::Options().ceiling);
  EXPECT_EQ(server_->streams(), 1);
}

TEST_F(GrpcLinkTest, AChangedLimitReachesTheServerOnTheSameStream) {
  StartServer();
  Open();
  ASSERT_TRUE(Await([&] { return State().connected == 1; }));
  ASSERT_EQ(tt_link_set_memory_limit(link_, 0), TT_LINK_OK);
  ASSERT_TRUE(server_->Await([](const Requests& requests) {
    return requests.size() == 2 && requests[1].has_hello() && requests[1].hello().memory_limit_bytes() == 0;
  }));
  EXPECT_EQ(server_->streams(), 1);
}

TEST_F(GrpcLinkTest, CloseLetsQueuedMessagesLeave) {
  StartServer();
  Open();
  ASSERT_EQ(PutTape(SmallTape(1, {8}, {0})), TT_LINK_OK);
  for (int step = 0; step < 20; ++step) ASSERT_EQ(Report(step), TT_LINK_OK);
  tt_link_close(link_, 60);
  link_ = nullptr;
  EXPECT_EQ(Steps(server_->requests()).size(), 20u);
  EXPECT_NE(server_->tape(1), "");
}

TEST_F(GrpcLinkTest, CloseDoesNotWaitForAServerThatIsAway) {
  StartServer();
  server_ = nullptr;
  Open();
  ASSERT_EQ(Report(1), TT_LINK_OK);
  ASSERT_TRUE(Await([&] { return std::string(State().last_error).find("ended: ") != std::string::npos; }));
  // Would run into the test's own time limit.
  tt_link_close(link_, 3600);
  link_ = nullptr;
}

// Voluntary context switches of the link's thread so far.
int64_t WakeUps() {
  int64_t total = 0;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* task = readdir(tasks)) {
    const std::string folder = std::string("/proc/self/task/") + task->d_name;
    std::string name;
    std::getline(std::ifstream(folder + "/comm") >> std::ws, name);
    if (name != "tt-link") continue;
    std::ifstream status(folder + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("voluntary_ctxt_switches:", 0) == 0) total += std::stoll(line.substr(line.find(':') + 1));
    }
  }
  closedir(tasks);
  return total;
}

TEST_F(GrpcLinkTest, TheThreadSleepsWhileThereIsNothingToDo) {
  StartServer();
  Open();
  ASSERT_TRUE(Await([&] { return State().connected == 1; }));
  ASSERT_TRUE(Await([&] {
    const int64_t before = WakeUps();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return before > 0 && WakeUps() == before;
  }));
  const int64_t before = WakeUps();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_LE(WakeUps() - before, 2);
}

TEST(ComplaintAboutServers, NamesWhatIsExpected) {
  EXPECT_EQ(ComplaintAboutServers("planner.example:50551"), "");
  EXPECT_EQ(ComplaintAboutServers("127.0.0.1:1"), "");
  EXPECT_EQ(ComplaintAboutServers("[::1]:50551"), "");
  for (const char* bad : {"planner", ":50551", "planner:", "planner:0", "planner:65536", "planner:x", "http://planner:80"}) {
    EXPECT_THAT(ComplaintAboutServers(bad), HasSubstr("host:port")) << bad;
  }
  EXPECT_THAT(ComplaintAboutServers("::1:50551"), HasSubstr("brackets"));
}

}  // namespace
}  // namespace tidetape::link
