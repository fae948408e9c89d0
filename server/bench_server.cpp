// How many agents one server carries: N streams, each with a connection of its own, report to a server in a process of its own.
//
// The last line is JSON: {"streams", "reports_per_second", "ack_p50_ms", "ack_p99_ms", "cpu_us_per_report", "bytes_per_stream",
// "failed_streams"}. The time of an acknowledgement runs from handing the report to gRPC to reading the answer, client and server
// on one machine; CPU and memory are the server's own, from /proc.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tidetape/v1/planner_service.grpc.pb.h"

ABSL_FLAG(std::string, server_binary, "bazel-bin/server/tidetape-server", "The server to start.");
ABSL_FLAG(int, streams, 1000, "Agents; each has a stream and a connection of its own.");
ABSL_FLAG(int, ranks, 64, "Agents in one job.");
ABSL_FLAG(double, reports_per_second, 1, "Of each stream; 0 sends the next report as soon as the last one is acknowledged.");
ABSL_FLAG(absl::Duration, duration, absl::Seconds(10), "How long to measure.");
ABSL_FLAG(absl::Duration, connect_timeout, absl::Seconds(60), "How long all streams have to be welcomed.");

namespace tidetape::server {
namespace {

class ServerProcess {
 public:
  // Empty address() where the server did not start.
  ServerProcess() {
    const std::string file = absl::StrFormat("/tmp/tidetape-bench-%d.address", getpid());
    std::string program = absl::GetFlag(FLAGS_server_binary), listen = "--listen=127.0.0.1:0", address = "--address_file=" + file,
                level = "--log_level=error";
    char* arguments[] = {program.data(), listen.data(), address.data(), level.data(), nullptr};
    if (posix_spawn(&pid_, program.c_str(), nullptr, nullptr, arguments, environ) != 0) return;
    for (int i = 0; i < 1000 && address_.empty(); ++i) {
      absl::SleepFor(absl::Milliseconds(10));
      std::ifstream(file) >> address_;
    }
    std::remove(file.c_str());
  }

  ~ServerProcess() {
    if (pid_ <= 0) return;
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }

  const std::string& address() const { return address_; }

  int64_t ResidentBytes() const {
    int64_t total = 0, resident = 0;
    std::ifstream(absl::StrFormat("/proc/%d/statm", pid_)) >> total >> resident;
    return resident * sysconf(_SC_PAGESIZE);
  }

  double CpuSeconds() const {
    std::ifstream stat(absl::StrFormat("/proc/%d/stat", pid_));
    std::string field;
    // utime and stime are fields 14 and 15; the second, the program's name, has no spaces here.
    for (int i = 0; i < 13; ++i) stat >> field;
    int64_t user = 0, system = 0;
    stat >> user >> system;
    return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }

 private:
  pid_t pid_ = -1;
  std::string address_;
};

// One agent. At most one report is unacknowledged.
class Agent final : public grpc::ClientBidiReactor<v1::ConnectRequest, v1::ConnectResponse> {
 public:
  Agent(const std::string& address, int number, bool eager) : eager_(eager) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = v1::PlannerService::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    const int ranks = absl::GetFlag(FLAGS_ranks);
    v1::Hello* hello = request_.mutable_hello();
    hello->set_job(absl::StrFormat("bench-%d", number / ranks));
    hello->set_incarnation("bench");
    hello->set_rank(number % ranks);
    hello->set_world_size(ranks);
    stub_->async()->Connect(&context_, this);
    absl::MutexLock lock(&mutex_);
    Send();
    StartRead(&response_);
    StartCall();
  }

  // Sends a report unless the last one is still under way.
  void Report() {
    absl::MutexLock lock(&mutex_);
    if (!welcomed_ || writing_ || acknowledged_ < sequence_ || ended_) return;
    SendReport();
  }

  void Measure(bool on) {
    absl::MutexLock lock(&mutex_);
    measuring_ = on;
  }

  bool welcomed() const {
    absl::MutexLock lock(&mutex_);
    return welcomed_;
  }
  bool ended() const {
    absl::MutexLock lock(&mutex_);
    return ended_;
  }
  std::vector<double> TakeMillis() {
    absl::MutexLock lock(&mutex_);
    return std::move(millis_);
  }

  void Stop() {
    context_.TryCancel();
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&ended_));
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (ok && eager_ && welcomed_ && acknowledged_ == sequence_) SendReport();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    absl::MutexLock lock(&mutex_);
    if (response_.has_welcome()) welcomed_ = true;
    if (response_.has_ack()) {
      acknowledged_ = response_.ack().sequence();
      if (acknowledged_ > 1 && measuring_) millis_.push_back(absl::ToDoubleMilliseconds(absl::Now() - sent_));
      if (eager_ && welcomed_ && !writing_ && acknowledged_ == sequence_) SendReport();
    }
    StartRead(&response_);
  }

  void OnDone(const grpc::Status&) override {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
  }

 private:
  void SendReport() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    v1::StepReport* report = request_.mutable_step_report();
    report->set_step(sequence_);
    report->set_step_seconds(1);
    report->set_step_peak_bytes(int64_t{70} << 30);
    report->set_replay_seconds(0.1);
    Send();
  }

  void Send() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    request_.set_sequence(++sequence_);
    sent_ = absl::Now();
    writing_ = true;
    StartWrite(&request_);
  }

  const bool eager_;
  std::unique_ptr<v1::PlannerService::Stub> stub_;
  grpc::ClientContext context_;
  v1::ConnectRequest request_;
  v1::ConnectResponse response_;
  mutable absl::Mutex mutex_;
  int64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t acknowledged_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time sent_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool welcomed_ ABSL_GUARDED_BY(mutex_) = false;
  bool measuring_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<double> millis_ ABSL_GUARDED_BY(mutex_);
};

double Quantile(const std::vector<double>& sorted, double q) {
  return sorted.empty() ? NAN : sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1))];
}

// Every stream once in each period, evenly spread over it.
void ReportInTurn(const std::vector<std::unique_ptr<Agent>>& agents, double per_second, absl::Time end) {
  const absl::Duration gap = absl::Seconds(1 / per_second) / static_cast<double>(agents.size());
  absl::Time next = absl::Now();
  for (size_t i = 0; absl::Now() < end; i = (i + 1) % agents.size()) {
    agents[i]->Report();
    next += gap;
    absl::SleepFor(next - absl::Now());
  }
}

int Run() {
  // Two descriptors a stream and some to spare.
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);

  ServerProcess server;
  if (server.address().empty()) {
    std::cerr << "cannot start " << absl::GetFlag(FLAGS_server_binary) << "; use --server_binary\n";
    return 1;
  }
  const int64_t bytes_before = server.ResidentBytes();
  const double per_second = absl::GetFlag(FLAGS_reports_per_second);
  std::vector<std::unique_ptr<Agent>> agents;
  for (int i = 0; i < absl::GetFlag(FLAGS_streams); ++i) {
    agents.push_back(std::make_unique<Agent>(server.address(), i, per_second == 0));
  }
  const absl::Time patience = absl::Now() + absl::GetFlag(FLAGS_connect_timeout);
  const auto all_welcomed = [&] { return std::all_of(agents.begin(), agents.end(), [](const auto& a) { return a->welcomed(); }); };
  while (!all_welcomed() && absl::Now() < patience) absl::SleepFor(absl::Milliseconds(50));

  for (const auto& agent : agents) agent->Measure(true);
  const absl::Time start = absl::Now();
  const double cpu_before = server.CpuSeconds();
  const absl::Time end = start + absl::GetFlag(FLAGS_duration);
  if (per_second == 0) {
    for (const auto& agent : agents) agent->Report();
    absl::SleepFor(end - absl::Now());
  } else {
    ReportInTurn(agents, per_second, end);
  }
  const double cpu = server.CpuSeconds() - cpu_before;
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  const int64_t bytes = server.ResidentBytes() - bytes_before;

  int64_t failed = 0;
  std::vector<double> millis;
  for (const auto& agent : agents) {
    agent->Measure(false);
    if (!agent->welcomed() || agent->ended()) ++failed;
    const std::vector<double> own = agent->TakeMillis();
    millis.insert(millis.end(), own.begin(), own.end());
  }
  for (const auto& agent : agents) agent->Stop();
  if (millis.empty()) {
    std::cerr << "no report was acknowledged\n";
    return 1;
  }
  std::sort(millis.begin(), millis.end());
  const auto reports = static_cast<double>(millis.size());
  std::cout << absl::StrFormat(
                   "{\"streams\": %d, \"reports_per_second\": %.1f, \"ack_p50_ms\": %.3f, \"ack_p99_ms\": %.3f, "
                   "\"cpu_us_per_report\": %.1f, \"bytes_per_stream\": %d, \"failed_streams\": %d}",
                   agents.size(), reports / seconds, Quantile(millis, 0.5), Quantile(millis, 0.99), cpu / reports * 1e6,
                   bytes / static_cast<int64_t>(agents.size()), failed)
            << std::endl;
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tidetape::server

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Measures how a server carries many agents' streams; the last line is JSON.");
  absl::ParseCommandLine(argc, argv);
  return tidetape::server::Run();
}
