// An agent for tests: a real gRPC stream to a real server, driven by hand.
#ifndef TIDETAPE_SERVER_TESTING_FAKE_AGENT_H_
#define TIDETAPE_SERVER_TESTING_FAKE_AGENT_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "net/client_security.h"
#include "tidetape/v1/planner_service.grpc.pb.h"

namespace tidetape::server {

inline std::shared_ptr<grpc::Channel> ConnectTo(const std::string& address, const net::ClientCredentials& credentials = {}) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Otherwise a test's channels to one address would share a connection, and with it its fate.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto secured = credentials.ForChannel(arguments);
  return grpc::CreateCustomChannel(address, secured, arguments);
}

// One thread sends; a thread of its own receives, unless the agent is a slow reader.
class FakeAgent {
 public:
  enum class Reading { kAtOnce, kWhenTold };

  FakeAgent(const std::string& address, const v1::Hello& hello, Reading reading = Reading::kAtOnce,
            const net::ClientCredentials& credentials = {})
      : stub_(v1::PlannerService::NewStub(ConnectTo(address, credentials))) {
    credentials.AddToken(context_);
    stream_ = stub_->Connect(&context_);
    v1::ConnectRequest request;
    *request.mutable_hello() = hello;
    Send(std::move(request));
    if (reading == Reading::kAtOnce) StartReading();
  }

  ~FakeAgent() {
    context_.TryCancel();
    if (reader_.joinable()) reader_.join();
  }

  void StartReading() {
    reader_ = std::thread([this] {
      v1::ConnectResponse response;
      while (stream_->Read(&response)) {
        absl::MutexLock lock(&mutex_);
        received_.push_back(response);
      }
      grpc::Status status = stream_->Finish();
      absl::MutexLock lock(&mutex_);
      status_ = std::move(status);
      ended_ = true;
    });
  }

  // Numbers the message and returns its sequence. A stream that has ended is noticed by the reader.
  int64_t Send(v1::ConnectRequest request) {
    request.set_sequence(++sequence_);
    stream_->Write(request);
    return sequence_;
  }
  int64_t SendReport(const v1::StepReport& report) {
    v1::ConnectRequest request;
    *request.mutable_step_report() = report;
    return Send(std::move(request));
  }
  int64_t SendActivated(int64_t generation, int64_t step) {
    v1::ConnectRequest request;
    request.mutable_plan_activated()->set_generation(generation);
    request.mutable_plan_activated()->set_step(step);
    return Send(std::move(request));
  }
  int64_t SendTape(const v1::BlockTape& tape, int chunks = 1) {
    const std::string data = tape.SerializeAsString();
    const size_t size = (data.size() + chunks - 1) / chunks;
    for (int i = 0; i < chunks; ++i) {
      v1::ConnectRequest request;
      request.mutable_tape_chunk()->set_structure_hash(tape.structure_hash());
      request.mutable_tape_chunk()->set_index(i);
      request.mutable_tape_chunk()->set_count(chunks);
      request.mutable_tape_chunk()->set_data(data.substr(i * size, size));
      Send(std::move(request));
    }
    return sequence_;
  }

  void HalfClose() { stream_->WritesDone(); }

  // Waits for a plan with at least this generation; one with generation 0 where none comes.
  v1::Plan WaitForPlan(int64_t generation) {
    v1::Plan plan;
    WaitUntil([&](const v1::ConnectResponse& response) {
      if (!response.has_plan() || response.plan().generation() < generation) return false;
      plan = response.plan();
      return true;
    });
    return plan;
  }
  bool WaitForAck(int64_t sequence) {
    return WaitUntil([&](const auto& response) { return response.has_ack() && response.ack().sequence() >= sequence; });
  }
  bool WaitForDrain() {
    return WaitUntil([](const auto& response) { return response.has_drain(); });
  }
  grpc::Status WaitForEnd() {
    absl::MutexLock lock(&mutex_);
    const bool ended = mutex_.AwaitWithTimeout(absl::Condition(&ended_), kPatience);
    return ended ? status_ : grpc::Status(grpc::DEADLINE_EXCEEDED, "the stream did not end");
  }

  std::vector<v1::ConnectResponse> received() const {
    absl::MutexLock lock(&mutex_);
    return received_;
  }

 private:
  // Far beyond what any test needs on a slow machine.
  static constexpr absl::Duration kPatience = absl::Seconds(30);

  template <typename Predicate>
  bool WaitUntil(Predicate holds) {
    const absl::Time deadline = absl::Now() + kPatience;
    size_t seen = 0;
    while (absl::Now() < deadline) {
      absl::MutexLock lock(&mutex_);
      for (; seen < received_.size(); ++seen) {
        if (holds(received_[seen])) return true;
      }
      if (ended_) return false;
      const auto news = [this, seen]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return ended_ || received_.size() > seen; };
      mutex_.AwaitWithDeadline(absl::Condition(&news), deadline);
    }
    return false;
  }

  std::unique_ptr<v1::PlannerService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ConnectRequest, v1::ConnectResponse>> stream_;
  std::thread reader_;
  int64_t sequence_ = 0;
  mutable absl::Mutex mutex_;
  std::vector<v1::ConnectResponse> received_ ABSL_GUARDED_BY(mutex_);
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_TESTING_FAKE_AGENT_H_
