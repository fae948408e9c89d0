// For tests: an agent that never gives up, and keeps a log of what it was told.
#ifndef TIDETAPE_SERVER_TESTING_LOGGING_AGENT_H_
#define TIDETAPE_SERVER_TESTING_LOGGING_AGENT_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/testing/example_job.h"
#include "server/testing/fake_agent.h"

namespace tidetape::server {

// A rank on a thread of its own: it connects to one server after another until it is welcomed, sends the tape that is missing and a
// report each few milliseconds, until told to stop.
class LoggingAgent {
 public:
  // What the agent knows for certain.
  struct Log {
    int64_t acknowledged_reports = 0;
    int64_t acknowledged_step = -1;        // highest
    std::map<int64_t, std::string> plans;  // serialized, by generation
    int64_t contradictions = 0;            // plans that came twice with different content
    int64_t streams = 0;                   // that were welcomed
  };

  LoggingAgent(std::vector<std::string> servers, v1::Hello hello) : servers_(std::move(servers)), hello_(std::move(hello)) {
    thread_ = std::thread([this] {
      for (size_t server = 0; !stopping_; ++server) RunStream(servers_[server % servers_.size()]);
    });
  }
  ~LoggingAgent() { Stop(); }

  void Stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }

  Log log() const {
    absl::MutexLock lock(&mutex_);
    return log_;
  }

 private:
  static constexpr absl::Duration kPause = absl::Milliseconds(3);

  void RunStream(const std::string& server) {
    const auto stub = v1::PlannerService::NewStub(ConnectTo(server));
    grpc::ClientContext context;
    const auto stream = stub->Connect(&context);
    {
      absl::MutexLock lock(&mutex_);
      steps_.clear();
      welcomed_ = ended_ = false;
    }
    v1::ConnectRequest request;
    request.set_sequence(1);
    *request.mutable_hello() = hello_;
    bool open = stream->Write(request);
    std::thread reader([&] {
      v1::ConnectResponse response;
      while (stream->Read(&response)) Take(response);
      absl::MutexLock lock(&mutex_);
      ended_ = true;
    });
    {
      absl::MutexLock lock(&mutex_);
      const auto answered = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return welcomed_ || ended_; };
      mutex_.AwaitWithTimeout(absl::Condition(&answered), absl::Seconds(5));
      open = open && welcomed_;
    }
    int64_t sequence = 1;
    if (open) {
      request.Clear();
      request.set_sequence(++sequence);
      const std::string tape = ExampleTape().SerializeAsString();
      request.mutable_tape_chunk()->set_structure_hash(kExampleHash);
      request.mutable_tape_chunk()->set_count(1);
      request.mutable_tape_chunk()->set_data(tape);
      open = stream->Write(request);
    }
    while (open && !stopping_) {
      request.Clear();
      request.set_sequence(++sequence);
      v1::StepReport report = ExampleReport(++step_);
      if (step_ % 8 != 0) report.clear_profile();
      *request.mutable_step_report() = std::move(report);
      {
        absl::MutexLock lock(&mutex_);
        steps_[sequence] = step_;
      }
      open = stream->Write(request);
      absl::SleepFor(kPause);
    }
    if (stopping_) context.TryCancel();
    stream->WritesDone();
    reader.join();
    stream->Finish();
    absl::SleepFor(absl::Milliseconds(10));
  }

  void Take(const v1::ConnectResponse& response) {
    absl::MutexLock lock(&mutex_);
    if (response.has_welcome()) {
      welcomed_ = true;
      ++log_.streams;
    }
    if (response.has_plan()) {
      const v1::Plan& plan = response.plan();
      const auto [known, added] = log_.plans.emplace(plan.generation(), plan.SerializeAsString());
      if (!added && known->second != plan.SerializeAsString()) ++log_.contradictions;
      hello_.set_held_generation(std::max(hello_.held_generation(), plan.generation()));
    }
    while (response.has_ack() && !steps_.empty() && steps_.begin()->first <= response.ack().sequence()) {
      ++log_.acknowledged_reports;
      log_.acknowledged_step = std::max(log_.acknowledged_step, steps_.begin()->second);
      steps_.erase(steps_.begin());
    }
  }

  const std::vector<std::string> servers_;
  std::atomic<bool> stopping_ = false;
  int64_t step_ = 0;
  mutable absl::Mutex mutex_;
  v1::Hello hello_;
  std::map<int64_t, int64_t> steps_ ABSL_GUARDED_BY(mutex_);  // reports under way, by sequence
  bool welcomed_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  Log log_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_TESTING_LOGGING_AGENT_H_
