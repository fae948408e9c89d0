// Who gets in, and for what: every RPC, for every role and every way not to have one, against a real server with mutual TLS.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "server/testing/example_job.h"
#include "server/testing/fake_agent.h"
#include "server/testing/server_process.h"
#include "server/testing/test_certificates.h"

namespace tidetape::server {
namespace {

using grpc::StatusCode;
using Stub = v1::PlannerService::Stub;
using testing::HasSubstr;

constexpr char kJob[] = "train-1";

void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
}

template <typename Request, typename Response>
grpc::Status Call(Stub& stub, const net::ClientCredentials& credentials,
                  grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*), const std::string& job) {
  grpc::ClientContext context;
  SetDeadline(context);
  credentials.AddToken(context);
  Request request;
  if constexpr (requires { request.set_job(job); }) request.set_job(job);
  Response response;
  return (stub.*method)(&context, request, &response);
}

// OK once a report of the job was acknowledged.
grpc::Status Connect(Stub& stub, const net::ClientCredentials& credentials, const std::string& job) {
  grpc::ClientContext context;
  SetDeadline(context);
  credentials.AddToken(context);
  const auto stream = stub.Connect(&context);
  v1::ConnectRequest request;
  request.set_sequence(1);
  *request.mutable_hello() = ExampleHello(1, 2, "first");
  request.mutable_hello()->set_job(job);
  stream->Write(request);
  v1::ConnectResponse response;
  while (stream->Read(&response)) {
    if (!response.has_ack()) continue;
    context.TryCancel();
    stream->Finish();
    return grpc::Status::OK;
  }
  return stream->Finish();
}

grpc::Status Watch(Stub& stub, const net::ClientCredentials& credentials, const std::string& job) {
  grpc::ClientContext context;
  SetDeadline(context);
  credentials.AddToken(context);
  v1::WatchJobRequest request;
  request.set_job(job);
  const auto stream = stub.WatchJob(&context, request);
  v1::WatchJobResponse response;
  if (!stream->Read(&response)) return stream->Finish();
  context.TryCancel();
  stream->Finish();
  return grpc::Status::OK;
}

// A job with a plan, and one that may be ended, of mutual TLS and tokens.
class SecureServer {
 public:
  SecureServer()
      : certificates_(Made()),
        server_({"--store=memory", "--tls_cert=" + certificates_.File("server.pem"),
                 "--tls_key=" + certificates_.File("server.key"), "--tls_client_ca=" + certificates_.File("ca.pem"),
                 "--token_file=" + certificates_.File("tokens"), "--audit_log=" + certificates_.File("audit")}) {
    EXPECT_TRUE(server_.Start());
    for (const std::string job : {kJob, "train-2", "other", "to-end"}) {
      for (int rank = 0; rank < 2; ++rank) {
        v1::Hello hello = ExampleHello(rank, 2, "first");
        hello.set_job(job);
        agents_.push_back(
            std::make_unique<FakeAgent>(server_.address(), hello, FakeAgent::Reading::kAtOnce, Credentials("client", "operator")));
        agents_.back()->SendTape(ExampleTape());
        agents_.back()->SendReport(ExampleReport());
      }
    }
    for (const auto& agent : agents_) EXPECT_EQ(agent->WaitForPlan(1).generation(), 1);
  }

  net::ClientCredentials Credentials(const std::string& certificate, const std::string& token) const {
    return net::ClientCredentials::Load(certificates_.Security(certificate, token), server_.address()).value();
  }

  ServerProcess& process() { return server_; }
  TestCertificates& certificates() { return certificates_; }

 private:
  static TestCertificates Made() {
    TestCertificates certificates("secure");
    certificates.Make("server");
    certificates.Make("client");
    certificates.Make("expired", /*expired=*/true);
    std::ofstream(certificates.File("tokens"))
        << certificates.MakeToken("agent", "agent", "train-*") << certificates.MakeToken("reader", "reader")
        << certificates.MakeToken("operator", "operator");
    certificates.MakeToken("wrong", "operator");  // not in the file
    return certificates;
  }

  TestCertificates certificates_;
  ServerProcess server_;
  std::vector<std::unique_ptr<FakeAgent>> agents_;
};

SecureServer& Server() {
  static SecureServer server;
  return server;
}

struct Rpc {
  const char* name;
  std::function<grpc::Status(Stub&, const net::ClientCredentials&, const std::string& job)> call;
  // What an agent gets for a job of its own and for another one, and a reader for any.
  StatusCode agent_own;
  StatusCode agent_other;
  StatusCode reader;
  StatusCode for_operator = StatusCode::OK;
};

template <typename Request, typename Response>
auto Unary(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*)) {
  return [method](Stub& stub, const net::ClientCredentials& credentials, const std::string& job) {
    return Call(stub, credentials, method, job);
  };
}

const Rpc kRpcs[] = {
    {"Connect", Connect, StatusCode::OK, StatusCode::PERMISSION_DENIED, StatusCode::PERMISSION_DENIED},
    {"ListJobs", Unary(&Stub::ListJobs), StatusCode::PERMISSION_DENIED, StatusCode::PERMISSION_DENIED, StatusCode::OK},
    {"GetJob", Unary(&Stub::GetJob), StatusCode::OK, StatusCode::PERMISSION_DENIED, StatusCode::OK},
    {"GetPlan", Unary(&Stub::GetPlan), StatusCode::OK, StatusCode::PERMISSION_DENIED, StatusCode::OK},
    {"ListPlans", Unary(&Stub::ListPlans), StatusCode::OK, StatusCode::PERMISSION_DENIED, StatusCode::OK},
    {"GetProblem", Unary(&Stub::GetProblem), StatusCode::OK, StatusCode::PERMISSION_DENIED, StatusCode::OK},
    {"GetFrontier", Unary(&Stub::GetFrontier), StatusCode::OK, StatusCode::PERMISSION_DENIED, StatusCode::OK},
    {"ExplainPlan", Unary(&Stub::ExplainPlan), StatusCode::OK, StatusCode::PERMISSION_DENIED, StatusCode::OK},
    {"GetStepMemory", Unary(&Stub::GetStepMemory), StatusCode::OK, StatusCode::PERMISSION_DENIED, StatusCode::OK},
    {"SimulatePlan", Unary(&Stub::SimulatePlan), StatusCode::OK, StatusCode::PERMISSION_DENIED, StatusCode::OK},
    {"ComparePolicies", Unary(&Stub::ComparePolicies), StatusCode::OK, StatusCode::PERMISSION_DENIED, StatusCode::OK},
    // Without a pin, and with one size: whoever may ask is told so.
    {"PricePins", Unary(&Stub::PricePins), StatusCode::INVALID_ARGUMENT, StatusCode::PERMISSION_DENIED,
     StatusCode::INVALID_ARGUMENT, StatusCode::INVALID_ARGUMENT},
    {"FindBlockPlan", Unary(&Stub::FindBlockPlan), StatusCode::OK, StatusCode::PERMISSION_DENIED, StatusCode::OK},
    {"FindLargestSize", Unary(&Stub::FindLargestSize), StatusCode::FAILED_PRECONDITION, StatusCode::PERMISSION_DENIED,
     StatusCode::FAILED_PRECONDITION, StatusCode::FAILED_PRECONDITION},
    {"WatchJob", Watch, StatusCode::OK, StatusCode::PERMISSION_DENIED, StatusCode::OK},
    {"SetConstraints", Unary(&Stub::SetConstraints), StatusCode::PERMISSION_DENIED, StatusCode::PERMISSION_DENIED,
     StatusCode::PERMISSION_DENIED},
    {"EndJob", Unary(&Stub::EndJob), StatusCode::PERMISSION_DENIED, StatusCode::PERMISSION_DENIED, StatusCode::PERMISSION_DENIED},
};

class SecurityTable : public testing::TestWithParam<Rpc> {
 protected:
  StatusCode Ask(const std::string& certificate, const std::string& token, const std::string& job) {
    const net::ClientCredentials credentials = Server().Credentials(certificate, token);
    const auto stub = v1::PlannerService::NewStub(ConnectTo(Server().process().address(), credentials));
    const grpc::Status status = GetParam().call(*stub, credentials, job);
    said_ = status.error_message();
    return status.error_code();
  }

  std::string said_;
};

// Connect is asked for rank 1 of another job than those whose ranks the other calls need.
std::string OwnJob(const Rpc& rpc) { return std::string(rpc.name) == "Connect" ? "train-2" : kJob; }

TEST_P(SecurityTable, NoOrAWrongToken) {
  EXPECT_EQ(Ask("client", "", OwnJob(GetParam())), StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(said_, HasSubstr("a token is needed"));
  EXPECT_EQ(Ask("client", "wrong", OwnJob(GetParam())), StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(said_, HasSubstr("not known here"));
  EXPECT_EQ(said_.find("token-of-"), std::string::npos);
}

TEST_P(SecurityTable, NoOrAnExpiredCertificate) {
  for (const char* token : {"agent", "reader", "operator"}) {
    EXPECT_EQ(Ask("expired", token, OwnJob(GetParam())), StatusCode::UNAVAILABLE) << token;
    EXPECT_EQ(Ask("", token, OwnJob(GetParam())), StatusCode::UNAVAILABLE) << token;
  }
}

TEST_P(SecurityTable, Agent) {
  EXPECT_EQ(Ask("client", "agent", OwnJob(GetParam())), GetParam().agent_own) << said_;
  EXPECT_EQ(Ask("client", "agent", "other"), GetParam().agent_other) << said_;
  // Nobody learns which jobs there are.
  EXPECT_EQ(Ask("client", "agent", "ghost"), GetParam().agent_other) << said_;
}

TEST_P(SecurityTable, Reader) {
  for (const std::string& job : {OwnJob(GetParam()), std::string("other")}) {
    EXPECT_EQ(Ask("client", "reader", job), GetParam().reader) << job << ": " << said_;
  }
}

TEST_P(SecurityTable, Operator) {
  const std::string job = std::string(GetParam().name) == "EndJob" ? "to-end" : OwnJob(GetParam());
  EXPECT_EQ(Ask("client", "operator", job), GetParam().for_operator) << said_;
}

INSTANTIATE_TEST_SUITE_P(Every, SecurityTable, testing::ValuesIn(kRpcs), [](const auto& info) { return info.param.name; });

TEST(Security, EveryRpcIsInTheTable) {
  const auto* service = v1::Hello::descriptor()->file()->FindServiceByName("PlannerService");
  ASSERT_NE(service, nullptr);
  std::vector<std::string> declared, tested;
  for (int i = 0; i < service->method_count(); ++i) declared.push_back(service->method(i)->name());
  for (const Rpc& rpc : kRpcs) tested.push_back(rpc.name);
  EXPECT_THAT(tested, testing::UnorderedElementsAreArray(declared));
}

TEST(Security, ChangesAndRefusalsAreWrittenDown) {
  const auto ask = [](const std::string& token, int64_t limit) {
    const net::ClientCredentials credentials = Server().Credentials("client", token);
    const auto stub = v1::PlannerService::NewStub(ConnectTo(Server().process().address(), credentials));
    grpc::ClientContext context;
    credentials.AddToken(context);
    v1::SetConstraintsRequest request;
    request.set_job("train-2");
    request.mutable_constraints()->set_memory_limit_bytes(limit);
    v1::SetConstraintsResponse response;
    return stub->SetConstraints(&context, request, &response).error_code();
  };
  EXPECT_EQ(ask("operator", 4321), StatusCode::OK);
  EXPECT_EQ(ask("operator", 4322), StatusCode::OK);
  EXPECT_EQ(ask("operator", -9), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ask("reader", 4323), StatusCode::PERMISSION_DENIED);
  std::ifstream file(Server().certificates().File("audit"));
  std::stringstream content;
  content << file.rdbuf();
  EXPECT_THAT(content.str(),
              HasSubstr("\"who\":\"operator\",\"peer\":\"ipv4:127.0.0.1\",\"action\":\"SetConstraints\",\"job\":\"train-2\","
                        "\"before\":{\"memory_limit_bytes\":\"4321\"},\"after\":{\"memory_limit_bytes\":\"4322\"},"
                        "\"outcome\":\"OK\"}"));
  EXPECT_THAT(content.str(), HasSubstr("memory_limit_bytes = -9"));
  EXPECT_THAT(content.str(), HasSubstr("'reader' is a reader; changing a job takes the token of an operator"));
}

TEST(Security, ATokenThatIsTakenOutGetsNobodyInAnyMore) {
  TestCertificates& certificates = Server().certificates();
  const std::string line = certificates.MakeToken("guest", "reader");
  const auto ask = [] {
    const net::ClientCredentials credentials = Server().Credentials("client", "guest");
    const auto stub = v1::PlannerService::NewStub(ConnectTo(Server().process().address(), credentials));
    return Call(*stub, credentials, &Stub::ListJobs, "").error_code();
  };
  const auto await = [&](StatusCode code) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (ask() != code && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(50));
    return ask() == code;
  };
  std::stringstream before;
  before << std::ifstream(certificates.File("tokens")).rdbuf();
  const auto write = [&](const std::string& content) {
    std::ofstream(certificates.File("tokens.new")) << content;
    std::filesystem::rename(certificates.File("tokens.new"), certificates.File("tokens"));
  };
  EXPECT_EQ(ask(), StatusCode::UNAUTHENTICATED);
  write(before.str() + line);
  EXPECT_TRUE(await(StatusCode::OK));
  write(before.str());
  EXPECT_TRUE(await(StatusCode::UNAUTHENTICATED));
}

TEST(Security, PlaintextStaysOnThisMachineUnlessToldSo) {
  const auto start = [](std::vector<std::string> flags) {
    flags.push_back("--store=memory");
    ServerProcess server(std::move(flags));
    return server.Start();
  };
  // The last --listen wins.
  EXPECT_TRUE(start({}));
  EXPECT_FALSE(start({"--listen=0.0.0.0:0"}));
  EXPECT_TRUE(start({"--listen=0.0.0.0:0", "--allow_plaintext"}));
  EXPECT_FALSE(start({"--tls_cert=" + Server().certificates().File("server.pem")}));
  EXPECT_FALSE(start({"--tls_cert=/nowhere", "--tls_key=/nowhere"}));
  EXPECT_FALSE(start({"--tls_client_ca=" + Server().certificates().File("ca.pem")}));
  EXPECT_FALSE(start({"--token_file=/nowhere"}));
}

TEST(Security, APeerHasSoManyStreams) {
  ServerProcess server({"--store=memory", "--streams_per_peer=2"});
  ASSERT_TRUE(server.Start());
  FakeAgent zero(server.address(), ExampleHello(0, 3));
  auto one = std::make_unique<FakeAgent>(server.address(), ExampleHello(1, 3));
  ASSERT_TRUE(zero.WaitForAck(1));
  ASSERT_TRUE(one->WaitForAck(1));
  EXPECT_EQ(FakeAgent(server.address(), ExampleHello(2, 3)).WaitForEnd().error_code(), StatusCode::RESOURCE_EXHAUSTED);
  one.reset();
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  bool in = false;
  while (!in && absl::Now() < deadline) in = FakeAgent(server.address(), ExampleHello(2, 3)).WaitForAck(1);
  EXPECT_TRUE(in);
}

// A flood is read at the rate, loses nothing, and leaves the others alone.
TEST(Security, AFloodIsReadAtItsRate) {
  ServerProcess server({"--store=memory", "--messages_per_second=20"});
  ASSERT_TRUE(server.Start());
  FakeAgent flood(server.address(), ExampleHello(0, 2));
  int64_t last = 0;
  const absl::Time start = absl::Now();
  for (int i = 0; i < 230; ++i) last = flood.SendActivated(0, i);
  FakeAgent calm(server.address(), ExampleHello(1, 2));
  EXPECT_TRUE(calm.WaitForAck(1));
  EXPECT_TRUE(flood.WaitForAck(last));
  // 200 at once, the rest at 20 a second: the limit, and no figure of this machine.
  EXPECT_GE(absl::Now() - start, absl::Seconds(1));
}

TEST(Security, MessagesHaveASize) {
  ServerProcess server({"--store=memory", "--max_message_bytes=100000"});
  ASSERT_TRUE(server.Start());
  FakeAgent agent(server.address(), ExampleHello());
  v1::StepReport report = ExampleReport();
  for (int i = 0; i < 200'000; ++i) report.add_live_bytes(i);
  agent.SendReport(report);
  EXPECT_EQ(agent.WaitForEnd().error_code(), StatusCode::RESOURCE_EXHAUSTED);
}

}  // namespace
}  // namespace tidetape::server
