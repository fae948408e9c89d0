// The server in this process, over real gRPC on loopback, with fake agents.
#include "server/server.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "net/leader_detail.h"
#include "server/store/faulty_store.h"
#include "server/store/memory_store.h"
#include "server/testing/example_job.h"
#include "server/testing/fake_agent.h"

namespace tidetape::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Stub = v1::PlannerService::Stub;

// One message there, one back, as bytes: Debian has no generated code for these services.
std::string CallRaw(const std::string& address, const std::string& method, const std::string& request) {
  grpc::GenericStub stub(ConnectTo(address));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(&context, method, &queue);
  void* tag = nullptr;
  bool ok = false;
  call->StartCall(nullptr);
  queue.Next(&tag, &ok);
  const grpc::Slice slice(request);
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  queue.Next(&tag, &ok);
  grpc::ByteBuffer response;
  call->Read(&response, nullptr);
  queue.Next(&tag, &ok);
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (ok && response.Dump(&slices).ok()) {
    for (const grpc::Slice& part : slices) bytes.append(reinterpret_cast<const char*>(part.begin()), part.size());
  }
  context.TryCancel();
  return bytes;
}

bool IsHealthy(const std::string& address, const std::string& service) {
  // HealthCheckRequest.service is field 1, HealthCheckResponse.status field 1, and SERVING is 1.
  const std::string request = service.empty() ? "" : std::string("\x0a") + static_cast<char>(service.size()) + service;
  return CallRaw(address, "/grpc.health.v1.Health/Check", request) == "\x08\x01";
}

class ServerTest : public testing::Test {
 protected:
  ServerTest() { Start(); }

  void Start() {
    Server::Options options;
    options.listen = "127.0.0.1:0";
    options.drain_wait = absl::Seconds(1);
    options.shutdown_wait = absl::Milliseconds(300);
    options.sweep_interval = absl::Milliseconds(50);
    auto server = Server::Start(options, &faulty_, &clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::PlannerService::NewStub(ConnectTo(server_->address()));
  }

  // The server forgets everything, as a process with a memory store does.
  void Restart() {
    server_.reset();
    store_ = std::make_unique<MemoryStore>();
    faulty_.Use(store_.get());
    Start();
  }

  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*), const Request& request,
                    Response& response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    return (stub_.get()->*method)(&context, request, &response);
  }

  bool Healthy(const std::string& service) { return IsHealthy(server_->address(), service); }

  static bool Await(const std::function<bool()>& holds) {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (!holds()) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return true;
  }

  std::unique_ptr<FakeAgent> MakeAgent(const v1::Hello& hello) { return std::make_unique<FakeAgent>(server_->address(), hello); }

  // All ranks of a job that has its first plan.
  std::vector<std::unique_ptr<FakeAgent>> RunJob(int ranks) {
    std::vector<std::unique_ptr<FakeAgent>> agents;
    for (int rank = 0; rank < ranks; ++rank) agents.push_back(MakeAgent(ExampleHello(rank, ranks)));
    agents[0]->SendTape(ExampleTape());
    for (auto& agent : agents) agent->SendReport(ExampleReport());
    for (auto& agent : agents) EXPECT_EQ(agent->WaitForPlan(1).generation(), 1);
    return agents;
  }

  std::unique_ptr<MemoryStore> store_ = std::make_unique<MemoryStore>();
  FaultyStore faulty_{store_.get()};
  SystemClock clock_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Stub> stub_;
};

TEST_F(ServerTest, AllRanksGetTheSamePlan) {
  const auto agents = RunJob(3);
  const v1::Plan first = agents[0]->WaitForPlan(1);
  EXPECT_EQ(first.step_peak_bytes(), 1300);
  EXPECT_DOUBLE_EQ(first.replay_seconds(), 0.001);
  for (const auto& agent : agents) EXPECT_EQ(agent->WaitForPlan(1).SerializeAsString(), first.SerializeAsString());
  EXPECT_THAT(agents[0]->received()[0].welcome().missing_tapes(), ElementsAre(kExampleHash));
}

TEST_F(ServerTest, ATapeInChunksIsPutTogetherAndAsked) {
  const auto agent = MakeAgent(ExampleHello());
  agent->SendReport(ExampleReport());
  ASSERT_TRUE(agent->WaitForAck(2));
  EXPECT_TRUE(agent->WaitForAck(agent->SendTape(ExampleTape(), 7)));
  EXPECT_EQ(agent->WaitForPlan(1).generation(), 1);
  int asked = 0;
  for (const auto& response : agent->received()) asked += response.tape_request().structure_hashes_size();
  EXPECT_EQ(asked, 1);
}

TEST_F(ServerTest, AnOlderIncarnationIsRefusedAndAnOldStreamEnds) {
  const auto old = MakeAgent(ExampleHello(0, 1, "first", 1));
  ASSERT_TRUE(old->WaitForAck(1));
  const auto young = MakeAgent(ExampleHello(0, 1, "second", 2));
  ASSERT_TRUE(young->WaitForAck(1));
  EXPECT_EQ(old->WaitForEnd().error_code(), grpc::FAILED_PRECONDITION);
  const grpc::Status refused = MakeAgent(ExampleHello(0, 1, "first", 1))->WaitForEnd();
  EXPECT_EQ(refused.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr("superseded by the newer incarnation 'second'"));
  EXPECT_TRUE(young->WaitForAck(young->SendReport(ExampleReport())));
}

TEST_F(ServerTest, ANewStreamOfARankReplacesTheOldOne) {
  auto agents = RunJob(2);
  const auto again = MakeAgent(ExampleHello(1, 2));
  EXPECT_EQ(again->WaitForPlan(1).generation(), 1);  // it said that it holds none
  EXPECT_EQ(agents[1]->WaitForEnd().error_code(), grpc::ABORTED);
  EXPECT_TRUE(agents[0]->WaitForAck(agents[0]->SendReport(ExampleReport(2))));
}

TEST_F(ServerTest, ARestartWithAnEmptyStoreGoesOnAboveWhatRanksHold) {
  auto agents = RunJob(2);
  agents.clear();
  Restart();
  std::vector<std::unique_ptr<FakeAgent>> back;
  for (int rank = 0; rank < 2; ++rank) {
    v1::Hello hello = ExampleHello(rank, 2);
    hello.set_held_generation(7);
    hello.set_active_generation(7 - rank);
    back.push_back(MakeAgent(hello));
    back.back()->SendTape(ExampleTape());
    back.back()->SendReport(ExampleReport(50));
  }
  EXPECT_EQ(back[0]->WaitForPlan(1).generation(), 8);
  EXPECT_EQ(back[1]->WaitForPlan(1).generation(), 8);
}

TEST_F(ServerTest, BadMessagesEndTheStreamAndSayWhy) {
  const auto agent = MakeAgent(ExampleHello());
  v1::StepReport report = ExampleReport(12);
  report.set_step_seconds(std::numeric_limits<double>::quiet_NaN());
  agent->SendReport(report);
  const grpc::Status status = agent->WaitForEnd();
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("job 'example', rank 0, step 12: step_seconds = nan"));

  EXPECT_EQ(MakeAgent(ExampleHello(3, 2))->WaitForEnd().error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(MakeAgent(v1::Hello())->WaitForEnd().error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(MakeAgent(ExampleHello(0, 5))->WaitForEnd().error_code(), grpc::INVALID_ARGUMENT);  // another world size

  v1::BlockTape tape = ExampleTape();
  tape.mutable_ops(0)->add_reads(99);
  const auto with_bad_tape = MakeAgent(ExampleHello());
  with_bad_tape->SendTape(tape);
  EXPECT_THAT(with_bad_tape->WaitForEnd().error_message(), HasSubstr("ops[0].reads[1] = 99"));
}

TEST_F(ServerTest, MessagesMustBeginWithHelloAndCountUp) {
  grpc::ClientContext context;
  const auto stream = stub_->Connect(&context);
  v1::ConnectRequest request;
  request.set_sequence(1);
  *request.mutable_step_report() = ExampleReport();
  stream->Write(request);
  EXPECT_EQ(stream->Finish().error_message(), "the first message of a stream must be hello");

  grpc::ClientContext other;
  const auto repeated = stub_->Connect(&other);
  *request.mutable_hello() = ExampleHello();
  repeated->Write(request);
  repeated->Write(request);
  v1::ConnectResponse response;
  while (repeated->Read(&response)) continue;
  EXPECT_THAT(repeated->Finish().error_message(), HasSubstr("sequence = 1 must be above 1"));
}

TEST_F(ServerTest, ASlowReaderGetsWhatStillMatters) {
  FakeAgent agent(server_->address(), ExampleHello(), FakeAgent::Reading::kWhenTold);
  agent.SendTape(ExampleTape());
  agent.SendReport(ExampleReport());
  int64_t last = 0;
  constexpr int kMessages = 20'000;
  for (int i = 0; i < kMessages; ++i) last = agent.SendActivated(0, i);
  agent.StartReading();
  EXPECT_TRUE(agent.WaitForAck(last));
  EXPECT_EQ(agent.WaitForPlan(1).generation(), 1);
  EXPECT_LT(agent.received().size(), kMessages);
}

// Its write never ends, and still the stream must.
TEST_F(ServerTest, ASlowReaderCanBeReplacedAndDrained) {
  FakeAgent stuck(server_->address(), ExampleHello(), FakeAgent::Reading::kWhenTold);
  for (int i = 0; i < 20'000; ++i) stuck.SendActivated(0, i);
  const auto again = MakeAgent(ExampleHello());
  EXPECT_TRUE(again->WaitForAck(1));
  FakeAgent stuck_again(server_->address(), ExampleHello(), FakeAgent::Reading::kWhenTold);
  for (int i = 0; i < 20'000; ++i) stuck_again.SendActivated(0, i);
  EXPECT_EQ(again->WaitForEnd().error_code(), grpc::ABORTED);
  server_->Drain();
  stuck.StartReading();
  EXPECT_FALSE(stuck.WaitForEnd().ok());
}

TEST_F(ServerTest, AnEndedStreamIsADisconnectedRank) {
  auto agents = RunJob(2);
  agents[1]->HalfClose();
  EXPECT_TRUE(agents[1]->WaitForEnd().ok());
  agents[0].reset();  // cancelled
  v1::ListJobsResponse jobs;
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  do {
    ASSERT_TRUE(Call(&Stub::ListJobs, v1::ListJobsRequest(), jobs).ok());
  } while (jobs.jobs(0).connected_ranks() > 0 && absl::Now() < deadline);
  EXPECT_EQ(jobs.jobs(0).state(), v1::JobSummary::STATE_LOST);
}

TEST_F(ServerTest, DrainTellsAgentsAndEndsInTimeWithThoseWhoStay) {
  auto agents = RunJob(2);
  const absl::Time start = absl::Now();
  std::thread drain([this] { server_->Drain(); });
  EXPECT_TRUE(agents[0]->WaitForDrain());
  agents[0]->HalfClose();
  EXPECT_TRUE(agents[0]->WaitForEnd().ok());
  EXPECT_EQ(MakeAgent(ExampleHello(0, 2))->WaitForEnd().error_code(), grpc::UNAVAILABLE);
  drain.join();
  EXPECT_FALSE(agents[1]->WaitForEnd().ok());
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));  // against a drain that never ends
}

TEST_F(ServerTest, UnknownJobsAreToldWithTheKnownOnes) {
  v1::GetPlanRequest request;
  request.set_job("exampel");
  v1::GetPlanResponse response;
  EXPECT_EQ(Call(&Stub::GetPlan, request, response).error_message(), "no job 'exampel'; no job has connected yet");
  const auto agents = RunJob(1);
  const grpc::Status status = Call(&Stub::GetPlan, request, response);
  EXPECT_EQ(status.error_code(), grpc::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "no job 'exampel'; known jobs: example");
}

TEST_F(ServerTest, QuestionsBeforeThePlanSayWhatIsMissing) {
  const auto agent = MakeAgent(ExampleHello());
  ASSERT_TRUE(agent->WaitForAck(1));
  v1::GetPlanRequest request;
  request.set_job("example");
  v1::GetPlanResponse response;
  const grpc::Status status = Call(&Stub::GetPlan, request, response);
  EXPECT_EQ(status.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("waits for a profile of a steady step from ranks: 0"));
  v1::GetFrontierRequest frontier_request;
  frontier_request.set_job("example");
  v1::GetFrontierResponse frontier;
  EXPECT_EQ(Call(&Stub::GetFrontier, frontier_request, frontier).error_code(), grpc::FAILED_PRECONDITION);
}

TEST_F(ServerTest, EveryQuestionHasItsAnswer) {
  const auto agents = RunJob(2);
  v1::ListJobsResponse jobs;
  ASSERT_TRUE(Call(&Stub::ListJobs, v1::ListJobsRequest(), jobs).ok());
  ASSERT_EQ(jobs.jobs_size(), 1);
  EXPECT_EQ(jobs.jobs(0).generation(), 1);
  EXPECT_EQ(jobs.jobs(0).predicted_peak_bytes(), 1300);

  v1::GetJobRequest job_request;
  job_request.set_job("example");
  v1::GetJobResponse job;
  ASSERT_TRUE(Call(&Stub::GetJob, job_request, job).ok());
  EXPECT_EQ(job.ranks_size(), 2);
  EXPECT_EQ(job.ranks(1).node(), "node1");
  EXPECT_FALSE(job.ranks(0).last_report().has_profile());

  v1::GetProblemRequest problem_request;
  problem_request.set_job("example");
  v1::GetProblemResponse problem;
  ASSERT_TRUE(Call(&Stub::GetProblem, problem_request, problem).ok());
  EXPECT_EQ(problem.problem().blocks_size(), 2);

  v1::GetFrontierRequest frontier_request;
  frontier_request.set_job("example");
  v1::GetFrontierResponse frontier;
  ASSERT_TRUE(Call(&Stub::GetFrontier, frontier_request, frontier).ok());
  EXPECT_EQ(frontier.largest_peak_bytes(), 1400);
  EXPECT_EQ(frontier.points(0).bytes(), 1400);
  EXPECT_EQ(frontier.points(0).replay_seconds(), 0);
  EXPECT_EQ(frontier.current().bytes(), 1300);
  EXPECT_EQ(frontier.memory_limit_bytes(), 1300);
  frontier_request.set_block(0);
  ASSERT_TRUE(Call(&Stub::GetFrontier, frontier_request, frontier).ok());
  EXPECT_EQ(frontier.points(0).bytes(), 200);
  EXPECT_EQ(frontier.points().rbegin()->bytes(), 0);
  EXPECT_DOUBLE_EQ(frontier.points().rbegin()->replay_seconds(), 0.011);
  frontier_request.set_block(2);
  EXPECT_EQ(Call(&Stub::GetFrontier, frontier_request, frontier).error_code(), grpc::INVALID_ARGUMENT);

  v1::SimulatePlanRequest simulate;
  simulate.set_job("example");
  simulate.set_memory_limit_bytes(1200);
  v1::SimulatePlanResponse simulated;
  ASSERT_TRUE(Call(&Stub::SimulatePlan, simulate, simulated).ok());
  EXPECT_EQ(simulated.plan().generation(), 0);
  EXPECT_DOUBLE_EQ(simulated.plan().replay_seconds(), 0.002);
  simulate.clear_memory_limit_bytes();
  simulate.set_additional_base_bytes(100);  // 1000 + 100 + 200 saved
  ASSERT_TRUE(Call(&Stub::SimulatePlan, simulate, simulated).ok());
  EXPECT_EQ(simulated.plan().step_peak_bytes(), 1300);
  EXPECT_EQ(simulated.plan().saved_bytes(), 200);
  simulate.set_additional_base_bytes(-5000);
  EXPECT_EQ(Call(&Stub::SimulatePlan, simulate, simulated).error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(store_->ListPlans("example", 10)->size(), 1);
}

TEST_F(ServerTest, ExplainsEveryValue) {
  const auto agents = RunJob(1);
  v1::ExplainPlanRequest request;
  request.set_job("example");
  v1::ExplainPlanResponse response;
  ASSERT_TRUE(Call(&Stub::ExplainPlan, request, response).ok());
  ASSERT_EQ(response.blocks_size(), 2);
  int replayed = 0;
  for (const auto& block : response.blocks()) {
    ASSERT_EQ(block.values_size(), 2);  // the input is not a choice
    EXPECT_EQ(block.values(0).action(), v1::ACTION_SAVE);
    EXPECT_EQ(block.values(0).other_choice_bytes(), -100);
    EXPECT_DOUBLE_EQ(block.values(0).other_choice_seconds(), 0.010);
    if (block.values(1).action() != v1::ACTION_REPLAY) continue;
    ++replayed;
    EXPECT_DOUBLE_EQ(block.values(1).replay_seconds(), 0.001);
    EXPECT_EQ(block.values(1).other_choice_bytes(), 100);
    EXPECT_DOUBLE_EQ(block.values(1).other_choice_seconds(), -0.001);
    EXPECT_THAT(block.values(1).why(), HasSubstr("save 1 ms of replay"));
  }
  EXPECT_EQ(replayed, 1);
}

TEST_F(ServerTest, ConstraintsBringANewPlanToAllRanks) {
  const auto agents = RunJob(2);
  v1::SetConstraintsRequest request;
  request.set_job("example");
  request.mutable_constraints()->set_memory_limit_bytes(1200);
  v1::SetConstraintsResponse response;
  ASSERT_TRUE(Call(&Stub::SetConstraints, request, response).ok());
  for (const auto& agent : agents) EXPECT_EQ(agent->WaitForPlan(2).step_peak_bytes(), 1200);
  request.mutable_constraints()->set_memory_limit_bytes(-7);
  EXPECT_EQ(Call(&Stub::SetConstraints, request, response).error_code(), grpc::INVALID_ARGUMENT);
}

TEST_F(ServerTest, AWatcherHearsASummaryAndThenEvents) {
  const auto agents = RunJob(1);
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_job("example");
  const auto watch = stub_->WatchJob(&context, request);
  v1::WatchJobResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.summary().generation(), 1);
  agents[0]->SendActivated(1, 9);
  while (watch->Read(&response) && !response.has_event()) continue;
  EXPECT_EQ(response.event().text(), "all ranks run generation 1 from step 9");
  // A drain ends it, too.
  server_->Drain();
  while (watch->Read(&response)) continue;
  EXPECT_EQ(watch->Finish().error_code(), grpc::UNAVAILABLE);

  grpc::ClientContext unknown;
  Restart();
  EXPECT_EQ(stub_->WatchJob(&unknown, request)->Finish().error_code(), grpc::NOT_FOUND);
}

TEST_F(ServerTest, SaysWhetherItServesAndWhat) {
  for (const char* service : {"", "live", "store", "tidetape.v1.PlannerService"}) EXPECT_TRUE(Healthy(service)) << service;
  const std::string list_services = "\x3a\x01*";
  EXPECT_THAT(CallRaw(server_->address(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", list_services),
              HasSubstr("tidetape.v1.PlannerService"));
  const auto agents = RunJob(1);
  std::thread drain([this] { server_->Drain(); });
  EXPECT_TRUE(agents[0]->WaitForDrain());
  EXPECT_FALSE(Healthy(""));
  EXPECT_FALSE(Healthy("tidetape.v1.PlannerService"));
  EXPECT_TRUE(Healthy("live"));
  drain.join();
}

// As with a full disk or a database that is away: nothing is acknowledged, nothing is lost, and all goes on by itself.
TEST_F(ServerTest, AStoreThatTakesNoWritesIsToldAndRecovers) {
  auto agents = RunJob(2);
  faulty_.Fail(FaultyStore::Fault::kBeforeRequest, std::numeric_limits<int>::max());
  EXPECT_TRUE(Await([this] { return !Healthy("store"); }));
  EXPECT_FALSE(Healthy(""));
  EXPECT_TRUE(Healthy("live"));
  const int64_t unstored = agents[1]->SendReport(ExampleReport(2));
  EXPECT_EQ(agents[1]->WaitForEnd().error_code(), grpc::UNAVAILABLE);
  for (const auto& response : agents[1]->received()) EXPECT_LT(response.ack().sequence(), unstored);
  EXPECT_EQ(MakeAgent(ExampleHello(1, 2))->WaitForEnd().error_code(), grpc::UNAVAILABLE);
  // Questions are answered all the same.
  v1::ListJobsResponse jobs;
  EXPECT_TRUE(Call(&Stub::ListJobs, v1::ListJobsRequest(), jobs).ok());

  faulty_.Fail(FaultyStore::Fault::kNone, 0);
  EXPECT_TRUE(Await([this] { return Healthy(""); }));
  const auto again = MakeAgent(ExampleHello(1, 2));
  EXPECT_TRUE(again->WaitForAck(again->SendReport(ExampleReport(2))));
}

TEST_F(ServerTest, AServerThatStandsByNamesTheLeader) {
  Server::Options options;
  options.listen = "127.0.0.1:0";
  options.stand_by = true;
  MemoryStore store;
  const auto standing_by = Server::Start(options, &store, &clock_).value();
  const auto ask = [&] {
    const auto stub = v1::PlannerService::NewStub(ConnectTo(standing_by->address()));
    grpc::ClientContext context;
    v1::ListJobsResponse jobs;
    return stub->ListJobs(&context, v1::ListJobsRequest(), &jobs);
  };
  EXPECT_EQ(ask().error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(net::LeaderAddressOf(ask()), "");
  standing_by->StandBy("leader:1");
  EXPECT_EQ(net::LeaderAddressOf(ask()), "leader:1");
  EXPECT_EQ(net::LeaderAddressOf(FakeAgent(standing_by->address(), ExampleHello()).WaitForEnd()), "leader:1");
  EXPECT_FALSE(IsHealthy(standing_by->address(), ""));
  EXPECT_TRUE(IsHealthy(standing_by->address(), "live"));
  ASSERT_TRUE(standing_by->Lead().ok());
  EXPECT_TRUE(ask().ok());
  EXPECT_TRUE(IsHealthy(standing_by->address(), ""));
}

TEST_F(ServerTest, ATakenPortIsSaid) {
  Server::Options options;
  options.listen = server_->address();
  const auto second = Server::Start(options, store_.get(), &clock_);
  EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
}

}  // namespace
}  // namespace tidetape::server
