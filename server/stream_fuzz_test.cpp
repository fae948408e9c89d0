// The agents' stream under messages that nobody should send: whatever comes, the server lives, says no in a status that the
// protocol knows, and goes on serving another job as if nothing were.
//
// Seconds and seed come from TIDETAPE_FUZZ_SECONDS and TIDETAPE_FUZZ_SEED; what fails names its seed. The target that runs for ten
// minutes is meant for the sanitizers: bazel test --config=asan //server:stream_fuzz_long_test.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "server/common/clock.h"
#include "server/questions/job_queries.h"
#include "server/server.h"
#include "server/store/memory_store.h"
#include "server/testing/example_job.h"
#include "server/testing/fake_agent.h"
#include "server/testing/message_mutator.h"

namespace tidetape::server {
namespace {

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

// What an agent sends in its life, in order.
std::vector<v1::ConnectRequest> ValidMessages(const std::string& job) {
  std::vector<v1::ConnectRequest> messages;
  const auto add = [&messages]() -> v1::ConnectRequest& {
    v1::ConnectRequest& message = messages.emplace_back();
    message.set_sequence(static_cast<int64_t>(messages.size()));
    return message;
  };
  *add().mutable_hello() = ExampleHello();
  messages[0].mutable_hello()->set_job(job);
  v1::TapeChunk* chunk = add().mutable_tape_chunk();
  chunk->set_structure_hash(kExampleHash);
  chunk->set_count(1);
  chunk->set_data(ExampleTape().SerializeAsString());
  v1::StepReport report = ExampleReport();
  for (const int64_t bytes : {900, 1000, 1000, 1100, 1000, 900, 900, 800}) report.add_live_bytes(bytes);
  v1::TapeCosts* costs = report.add_costs();
  costs->set_structure_hash(kExampleHash);
  for (int i = 0; i < 2; ++i) {
    costs->add_cost_seconds(0.002);
    costs->add_replay_workspace_bytes(10);
  }
  *add().mutable_step_report() = report;
  add().mutable_plan_held()->set_generation(1);
  add().mutable_plan_activated()->set_generation(1);
  *add().mutable_hello() = messages[0].hello();
  return messages;
}

// One stream of raw bytes to the server. Returns the status with which it ended.
grpc::Status SendRaw(grpc::GenericStub& stub, grpc::CompletionQueue& queue, const std::vector<std::string>& messages) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  const auto await = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return ok;
  };
  const auto stream = stub.PrepareCall(&context, "/tidetape.v1.PlannerService/Connect", &queue);
  stream->StartCall(nullptr);
  bool open = await();
  for (size_t i = 0; open && i < messages.size(); ++i) {
    grpc::Slice slice(messages[i]);
    stream->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    open = await();
  }
  if (open) {
    stream->WritesDone(nullptr);
    await();
  }
  grpc::ByteBuffer answer;
  do {
    stream->Read(&answer, nullptr);
  } while (await());
  grpc::Status status;
  stream->Finish(&status, nullptr);
  await();
  return status;
}

TEST(StreamFuzz, WhateverComesTheServerLivesAndServesTheOthers) {
  const absl::Time end = absl::Now() + absl::Seconds(FromEnvironment("TIDETAPE_FUZZ_SECONDS", 5));
  auto seed = static_cast<uint64_t>(FromEnvironment("TIDETAPE_FUZZ_SEED", absl::ToUnixNanos(absl::Now())));
  // What the door, the job and gRPC may say. No UNKNOWN and no INTERNAL but gRPC's own for bytes that are no message.
  const std::set<grpc::StatusCode> expected = {grpc::StatusCode::OK,
                                               grpc::StatusCode::INVALID_ARGUMENT,
                                               grpc::StatusCode::FAILED_PRECONDITION,
                                               grpc::StatusCode::RESOURCE_EXHAUSTED,
                                               grpc::StatusCode::ABORTED,
                                               grpc::StatusCode::CANCELLED,
                                               grpc::StatusCode::INTERNAL,
                                               grpc::StatusCode::UNAVAILABLE};
  MemoryStore store;
  SystemClock clock;
  Server::Options options;
  options.listen = "127.0.0.1:0";
  options.registry.jobs = 50;
  options.sweep_interval = absl::Milliseconds(100);
  const auto server = Server::Start(options, &store, &clock);
  ASSERT_TRUE(server.ok()) << server.status();
  v1::Hello healthy = ExampleHello();
  healthy.set_job("healthy");
  FakeAgent agent((*server)->address(), healthy);
  agent.SendTape(ExampleTape());
  agent.SendReport(ExampleReport());
  ASSERT_EQ(agent.WaitForPlan(1).generation(), 1);

  grpc::GenericStub stub(ConnectTo((*server)->address()));
  grpc::CompletionQueue queue;
  int64_t streams = 0, refused = 0;
  for (; absl::Now() < end; ++seed, ++streams) {
    SCOPED_TRACE(testing::Message() << "TIDETAPE_FUZZ_SEED=" << seed);
    MessageMutator mutator(seed);
    std::vector<v1::ConnectRequest> messages = ValidMessages("fuzz-" + std::to_string(mutator.Below(20)));
    std::vector<std::string> raw;
    const size_t changes = 1 + mutator.Below(3);
    for (size_t i = 0; i < changes; ++i) mutator.MutateField(messages[mutator.Below(messages.size())]);
    for (const v1::ConnectRequest& message : messages) {
      raw.push_back(message.SerializeAsString());
      if (mutator.Below(12) == 0) mutator.MutateBytes(raw.back());
    }
    if (mutator.Below(8) == 0) std::swap(raw[mutator.Below(raw.size())], raw[mutator.Below(raw.size())]);
    const grpc::Status status = SendRaw(stub, queue, raw);
    EXPECT_TRUE(expected.count(status.error_code()) > 0) << status.error_code() << ": " << status.error_message();
    refused += status.ok() ? 0 : 1;
    // What people may ask of any job meanwhile: answered or refused, never a crash.
    for (const auto& job : (*server)->jobs()) {
      AnswerGetFrontier(*job, v1::GetFrontierRequest()).status().IgnoreError();
      AnswerExplainPlan(*job, v1::ExplainPlanRequest()).status().IgnoreError();
      AnswerGetStepMemory(*job).status().IgnoreError();
      const TimeLeft little = [] { return absl::Seconds(1); };
      AnswerComparePolicies(*job, v1::ComparePoliciesRequest(), little).status().IgnoreError();
      AnswerFindBlockPlan(*job, v1::FindBlockPlanRequest(), little).status().IgnoreError();
      v1::FindLargestSizeRequest largest;
      largest.set_memory_limit_bytes(1300);
      AnswerFindLargestSize(*job, largest, little).status().IgnoreError();
      job->Describe();
    }
    if (streams % 50 == 0) {
      ASSERT_TRUE(agent.WaitForAck(agent.SendReport(ExampleReport(2 + streams))));
    }
    if (HasFailure()) break;
  }
  ASSERT_TRUE(agent.WaitForAck(agent.SendReport(ExampleReport(2 + streams))));
  std::cout << streams << " streams, " << refused << " refused" << std::endl;
  EXPECT_GT(streams, 0);
}

}  // namespace
}  // namespace tidetape::server
