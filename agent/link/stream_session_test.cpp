#include "agent/link/stream_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <vector>

#include "agent/link/testing/small_job.h"
#include "planner/io/problem_io.h"

namespace tidetape::link {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StrEq;

class StreamSessionTest : public ::testing::Test {
 protected:
  StreamSessionTest() {
    options_.job = "job";
    options_.incarnation = "first";
    options_.incarnation_order = 12;
    options_.rank = 3;
    options_.world_size = 4;
  }

  StreamSession Start(bool recap = false) { return StreamSession(options_, outbox_, plans_, recap); }

  static std::vector<v1::ConnectRequest> Drain(StreamSession& session) {
    std::vector<v1::ConnectRequest> requests;
    v1::ConnectRequest request;
    while (session.Next(&request)) requests.push_back(request);
    return requests;
  }

  static void Welcome(StreamSession& session, const std::vector<uint64_t>& missing = {}) {
    v1::ConnectResponse response;
    response.mutable_welcome()->mutable_missing_tapes()->Add(missing.begin(), missing.end());
    session.Handle(response);
  }

  v1::ConnectResponse Plan(int64_t generation, const std::string& etag = "etag") {
    v1::ConnectResponse response;
    v1::Plan* plan = response.mutable_plan();
    plan->set_generation(generation);
    plan->set_job("job");
    plan->set_incarnation("first");
    plan->set_etag(etag);
    v1::BlockPlan* block = plan->add_blocks();
    block->set_name("layers.0");
    block->set_structure_hash(1);
    block->set_default_action(v1::ACTION_REPLAY);
    v1::SiteAction* site = block->add_sites();
    site->set_site(11);
    site->set_action(v1::ACTION_SAVE);
    block->add_saved(1);
    return response;
  }

  static StepReport Report(int64_t step) {
    StepReport report;
    report.step = step;
    return report;
  }

  LinkOptions options_;
  Outbox outbox_{4, 1000};
  PlanSlot plans_;
};

TEST_F(StreamSessionTest, HelloTellsWhereTheSchedulerPutTheProcess) {
  setenv("POD_NAMESPACE", "research", 1);
  setenv("POD_NAME", "train-0", 1);
  setenv("SLURM_JOB_ID", "4711", 1);
  StreamSession session = Start();
  v1::ConnectRequest request;
  ASSERT_TRUE(session.Next(&request));
  EXPECT_EQ(request.hello().pod_namespace(), "research");
  EXPECT_EQ(request.hello().pod(), "train-0");
  EXPECT_EQ(request.hello().slurm_job_id(), "4711");
  for (const char* name : {"POD_NAMESPACE", "POD_NAME", "SLURM_JOB_ID"}) unsetenv(name);
  StreamSession elsewhere = Start();
  ASSERT_TRUE(elsewhere.Next(&request));
  EXPECT_EQ(request.hello().pod_namespace() + request.hello().pod() + request.hello().slurm_job_id(), "");
}

TEST_F(StreamSessionTest, NothingGoesBeforeHelloAndNothingElseBeforeWelcome) {
  outbox_.tapes().Put(SmallTape(1, {8}, {0}));
  outbox_.tapes().Put(SmallTape(2, {8}, {0}));
  outbox_.PushReport(Report(0));
  outbox_.SetActivation({5, 9});
  StreamSession session = Start();
  const auto requests = Drain(session);
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].sequence(), 1);
  const v1::Hello& hello = requests[0].hello();
  EXPECT_EQ(hello.job(), "job");
  EXPECT_EQ(hello.incarnation(), "first");
  EXPECT_EQ(hello.incarnation_order(), 12);
  EXPECT_EQ(hello.rank(), 3);
  EXPECT_EQ(hello.world_size(), 4);
  EXPECT_EQ(hello.memory_limit_bytes(), 1000);
  EXPECT_THAT(hello.structure_hashes(), ElementsAre(1, 2));
  EXPECT_EQ(hello.active_generation(), 5);
  EXPECT_EQ(hello.held_generation(), 5);
  EXPECT_FALSE(session.welcomed());
}

TEST_F(StreamSessionTest, AfterWelcomeTapesGoFirstAndSequencesRise) {
  outbox_.tapes().Put(SmallTape(1, {8}, {0}));
  outbox_.tapes().Put(SmallTape(2, {8}, {0}));
  outbox_.PushReport(Report(7));
  outbox_.SetActivation({5, 9});
  StreamSession session = Start();
  Drain(session);
  outbox_.tapes().Put(SmallTape(3, {8}, {0}));  // recorded while Hello was on its way
  Welcome(session, {2, 99});
  const auto requests = Drain(session);
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_EQ(requests[0].tape_chunk().structure_hash(), 2u);
  EXPECT_EQ(requests[1].tape_chunk().structure_hash(), 3u);
  EXPECT_EQ(requests[2].plan_activated().generation(), 5);
  EXPECT_EQ(requests[2].plan_activated().step(), 9);
  EXPECT_EQ(requests[3].step_report().step(), 7);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(requests[i].sequence(), static_cast<int64_t>(i) + 2);
  EXPECT_THAT(Drain(session), IsEmpty());
}

TEST_F(StreamSessionTest, ChunksOfALargeTapeMakeTheTape) {
  planner::BlockTape tape = SmallTape(1, std::vector<int64_t>(20000, 8), std::vector<double>(20000, 1e-3));
  for (planner::Storage& storage : tape.storages) storage.label = std::string(200, 'x');
  outbox_.tapes().Put(tape);
  StreamSession session = Start();
  Drain(session);
  Welcome(session, {1});
  const auto requests = Drain(session);
  ASSERT_GT(requests.size(), 4u);
  std::string bytes;
  for (size_t i = 0; i < requests.size(); ++i) {
    const v1::TapeChunk& chunk = requests[i].tape_chunk();
    EXPECT_EQ(chunk.structure_hash(), 1u);
    EXPECT_EQ(chunk.index(), static_cast<int>(i));
    EXPECT_EQ(chunk.count(), static_cast<int>(requests.size()));
    EXPECT_LE(chunk.data().size(), size_t{1} << 20);
    EXPECT_GT(chunk.data().size(), 0u);
    bytes += chunk.data();
  }
  EXPECT_EQ(bytes, planner::ToProto(tape).SerializeAsString());
}

TEST_F(StreamSessionTest, ATapeGoesOnceUnlessTheServerAsks) {
  outbox_.tapes().Put(SmallTape(1, {8}, {0}));
  StreamSession session = Start();
  Drain(session);
  Welcome(session, {1});
  EXPECT_EQ(Drain(session).size(), 1u);
  EXPECT_FALSE(outbox_.tapes().Put(SmallTape(1, {8}, {0})));
  EXPECT_THAT(Drain(session), IsEmpty());
  v1::ConnectResponse request;
  request.mutable_tape_request()->add_structure_hashes(1);
  request.mutable_tape_request()->add_structure_hashes(1);
  request.mutable_tape_request()->add_structure_hashes(77);
  session.Handle(request);
  const auto again = Drain(session);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].tape_chunk().structure_hash(), 1u);
}

TEST_F(StreamSessionTest, AChangedLimitIsToldByAnotherHello) {
  StreamSession session = Start();
  Drain(session);
  Welcome(session);
  outbox_.SetMemoryLimit(-1);
  const auto requests = Drain(session);
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].hello().memory_limit_bytes(), -1);
  outbox_.SetMemoryLimit(-1);
  EXPECT_THAT(Drain(session), IsEmpty());
}

TEST_F(StreamSessionTest, APlanIsHeldAndAnswered) {
  StreamSession session = Start();
  Drain(session);
  Welcome(session);
  session.Handle(Plan(3));
  auto requests = Drain(session);
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].plan_held().generation(), 3);
  EXPECT_THAT(requests[0].plan_held().error(), IsEmpty());
  EXPECT_EQ(plans_.Take(3), nullptr);
  const tt_plan* plan = plans_.Take(2);
  ASSERT_NE(plan, nullptr);
  ASSERT_EQ(plan->num_blocks, 1u);
  EXPECT_THAT(plan->blocks[0].name, StrEq("layers.0"));
  EXPECT_EQ(plan->blocks[0].default_action, TT_ACTION_REPLAY);
  EXPECT_EQ(plan->blocks[0].num_saved, 1);
  ASSERT_EQ(plan->blocks[0].num_sites, 1u);
  EXPECT_EQ(plan->blocks[0].sites[0].site, 11u);
  EXPECT_EQ(plan->blocks[0].sites[0].action, TT_ACTION_SAVE);
  TakeBack(plan);
  // The same again, as after a reconnect.
  session.Handle(Plan(3));
  requests = Drain(session);
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_THAT(requests[0].plan_held().error(), IsEmpty());
  EXPECT_EQ(plans_.count(), 1);
  // The next stream tells what is held.
  StreamSession next = Start();
  EXPECT_EQ(Drain(next)[0].hello().held_generation(), 3);
}

TEST_F(StreamSessionTest, APlanThatCannotBeFollowedIsRefusedWithAReason) {
  StreamSession session = Start();
  Drain(session);
  Welcome(session);
  session.Handle(Plan(3));
  std::map<std::string, v1::ConnectResponse> bad;
  bad["another plan of this generation"] = Plan(3, "other");
  bad["generation 3 is held already"] = Plan(2);
  bad["incarnation 'second' of job 'job'"] = Plan(4);
  bad["incarnation 'second' of job 'job'"].mutable_plan()->set_incarnation("second");
  bad["default_action 0"] = Plan(4);
  bad["default_action 0"].mutable_plan()->mutable_blocks(0)->clear_default_action();
  bad["action 9"] = Plan(4);
  bad["action 9"].mutable_plan()->mutable_blocks(0)->mutable_sites(0)->set_action(static_cast<v1::Action>(9));
  Drain(session);
  for (const auto& [reason, response] : bad) {
    session.Handle(response);
    const auto requests = Drain(session);
    ASSERT_EQ(requests.size(), 1u);
    EXPECT_THAT(requests[0].plan_held().error(), HasSubstr(reason));
    EXPECT_THAT(session.complaint(), HasSubstr(reason));
  }
  EXPECT_EQ(plans_.generation(), 3);
  EXPECT_EQ(plans_.count(), 1);
}

TEST_F(StreamSessionTest, ANewStreamRecallsTheNewestProfileWithAllCosts) {
  StepReport measured = Report(10);
  measured.profile = SmallProfile({1}, 500);
  measured.costs = {{1, {0.5, -1}, {7, 0}}};
  outbox_.PushReport(measured);
  StepReport costs = Report(11);
  costs.costs = {{1, {-1, 0.25}, {0, 8}}, {2, {1.0}, {0}}};
  outbox_.PushReport(costs);
  outbox_.PushReport(Report(12));
  {
    StreamSession session = Start();
    Drain(session);
    Welcome(session);
    EXPECT_EQ(Drain(session).size(), 3u);
    v1::ConnectResponse ack;
    ack.mutable_ack()->set_sequence(4);
    session.Handle(ack);
  }
  outbox_.RequeueReports();
  StreamSession session = Start(/*recap=*/true);
  Drain(session);
  Welcome(session);
  const auto requests = Drain(session);
  ASSERT_EQ(requests.size(), 1u);
  const v1::StepReport& recap = requests[0].step_report();
  EXPECT_EQ(recap.step(), 10);
  EXPECT_EQ(recap.profile().blocks(0).instance().backward_base_bytes(), 500);
  EXPECT_TRUE(recap.profile().steady());
  ASSERT_EQ(recap.costs_size(), 2);
  EXPECT_THAT(recap.costs(0).cost_seconds(), ElementsAre(0.5, 0.25));
  EXPECT_THAT(recap.costs(0).replay_workspace_bytes(), ElementsAre(7, 8));
  EXPECT_EQ(recap.costs(1).structure_hash(), 2u);
}

TEST_F(StreamSessionTest, AReportTooLargeForTheServerIsLeftOutAndNamed) {
  StepReport huge = Report(1);
  huge.live_bytes.assign(2000000, int64_t{1} << 40);
  outbox_.PushReport(huge);
  outbox_.PushReport(Report(2));
  StreamSession session = Start();
  Drain(session);
  Welcome(session);
  const auto requests = Drain(session);
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].step_report().step(), 2);
  EXPECT_EQ(requests[0].sequence(), 2);
  EXPECT_THAT(session.complaint(), HasSubstr("step 1 has"));
}

TEST_F(StreamSessionTest, DrainEndsWritingAndBoundsTheTime) {
  StreamSession session = Start();
  Drain(session);
  Welcome(session);
  v1::ConnectResponse drain;
  drain.mutable_drain()->set_reconnect_after_seconds(1.5);
  session.Handle(drain);
  EXPECT_EQ(session.drain_seconds(), 1.5);
  outbox_.PushReport(Report(1));
  EXPECT_THAT(Drain(session), IsEmpty());
  drain.mutable_drain()->set_reconnect_after_seconds(1e30);
  session.Handle(drain);
  EXPECT_EQ(session.drain_seconds(), 300);
  drain.mutable_drain()->set_reconnect_after_seconds(std::nan(""));
  session.Handle(drain);
  EXPECT_EQ(session.drain_seconds(), 0);
}

}  // namespace
}  // namespace tidetape::link
