// How many agents one server carries: N streams, each with a connection of its own, report to a server in a process of its own.
//
// The server keeps its jobs in SQLite with full synchronisation unless --store says otherwise, so an acknowledgement means durable.
// With --dead_jobs, the agents of so many other jobs report beside them, as those of trainings that nobody looks after any more;
// the figures are of the others' streams. With --tape_bytes, all agents reconnect at once after the measurement (--tape_agents of
// them, if set), and each sends a tape of that size.
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
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tidetape/v1/planner_service.grpc.pb.h"

ABSL_FLAG(std::string, server_binary, "bazel-bin/server/tidetape-server", "The server to start.");
ABSL_FLAG(std::string, store, "", "As for tidetape-server; without it, an SQLite file in a folder of its own in /var/tmp.");
ABSL_FLAG(int64_t, tape_bytes, 0, "Size of the tapes that all agents send when they reconnect at once; 0: they do not.");
ABSL_FLAG(int, streams, 1000, "Agents; each has a stream and a connection of its own.");
ABSL_FLAG(int, ranks, 64, "Agents in one job.");
ABSL_FLAG(int, dead_jobs, 0, "Other jobs, with --ranks agents each, that report at the same rate and are not measured.");
ABSL_FLAG(int, tape_agents, 0, "Agents that reconnect and send tapes; 0: all of --streams.");
ABSL_FLAG(double, reports_per_second, 1, "Of each stream; 0 sends the next report as soon as the last one is acknowledged.");
ABSL_FLAG(absl::Duration, duration, absl::Seconds(10), "How long to measure.");
ABSL_FLAG(absl::Duration, connect_timeout, absl::Seconds(60), "How long all streams have to be welcomed.");

namespace tidetape::server {
namespace {

class ServerProcess {
 public:
  // Empty address() where the server did not start.
  ServerProcess() {
    // Not in /tmp, which may be memory and would make synchronisation free.
    std::string folder = "/var/tmp/tidetape-bench-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) return;
    folder_ = folder;
    const std::string file = folder_ + "/address";
    const std::string store_flag = absl::GetFlag(FLAGS_store);
    std::string store = "--store=" + (store_flag.empty() ? "sqlite:" + folder_ + "/server.db" : store_flag);
    // One host stands for many here.
    std::string peers = "--streams_per_peer=1000000", rate = "--messages_per_second=0";
    std::string program = absl::GetFlag(FLAGS_server_binary), listen = "--listen=127.0.0.1:0", address = "--address_file=" + file,
                level = "--log_level=error", http = "--http_listen=";
    char* arguments[] = {program.data(), listen.data(), address.data(), level.data(), http.data(),
                         store.data(),   peers.data(),  rate.data(),    nullptr};
    if (posix_spawn(&pid_, program.c_str(), nullptr, nullptr, arguments, environ) != 0) return;
    for (int i = 0; i < 1000 && address_.empty(); ++i) {
      absl::SleepFor(absl::Milliseconds(10));
      std::ifstream(file) >> address_;
    }
  }

  ~ServerProcess() {
    if (pid_ > 0) {
      kill(pid_, SIGTERM);
      waitpid(pid_, nullptr, 0);
    }
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
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
  std::string folder_;
  std::string address_;
};

// A tape of about so many bytes.
v1::BlockTape MakeTape(int64_t bytes) {
  v1::BlockTape tape;
  tape.set_structure_hash(1);
  tape.set_name("layers.0");
  const std::string label(100, 'x');
  for (int64_t size = 0; size < bytes; size += static_cast<int64_t>(label.size()) + 14) {
    v1::Storage* storage = tape.add_storages();
    storage->set_kind(v1::Storage::KIND_INTERMEDIATE);
    storage->set_bytes(1 << 20);
    storage->set_label(label);
  }
  return tape;
}

// One agent. At most one report is unacknowledged. With a tape, it sends that in place of reports.
class Agent final : public grpc::ClientBidiReactor<v1::ConnectRequest, v1::ConnectResponse> {
 public:
  Agent(const std::string& address, const std::string& job, int number, bool eager,
        std::shared_ptr<const std::string> tape = nullptr)
      : eager_(eager), tape_(std::move(tape)) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = v1::PlannerService::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    const int ranks = absl::GetFlag(FLAGS_ranks);
    v1::Hello* hello = request_.mutable_hello();
    hello->set_job(absl::StrFormat("%s-%d", job, number / ranks));
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

  // The server has all of the tape.
  bool tape_stored() const {
    absl::MutexLock lock(&mutex_);
    return tape_offset_ == tape_->size() && acknowledged_ == sequence_;
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
    if (ok) SendTapeChunk();
    if (ok && eager_ && welcomed_ && acknowledged_ == sequence_) SendReport();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    absl::MutexLock lock(&mutex_);
    if (response_.has_welcome()) {
      welcomed_ = true;
      SendTapeChunk();
    }
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
  void SendTapeChunk() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (tape_ == nullptr || !welcomed_ || writing_ || tape_offset_ == tape_->size()) return;
    v1::TapeChunk* chunk = request_.mutable_tape_chunk();
    chunk->set_structure_hash(1);
    chunk->set_index(static_cast<int32_t>(tape_offset_ / kChunkBytes));
    chunk->set_count(static_cast<int32_t>((tape_->size() + kChunkBytes - 1) / kChunkBytes));
    chunk->set_data(tape_->substr(tape_offset_, kChunkBytes));
    tape_offset_ += chunk->data().size();
    Send();
  }

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

  static constexpr size_t kChunkBytes = 1 << 20;

  const bool eager_;
  const std::shared_ptr<const std::string> tape_;
  std::unique_ptr<v1::PlannerService::Stub> stub_;
  grpc::ClientContext context_;
  v1::ConnectRequest request_;
  v1::ConnectResponse response_;
  mutable absl::Mutex mutex_;
  size_t tape_offset_ ABSL_GUARDED_BY(mutex_) = 0;
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

// All agents come back at once, each with a tape. Returns how many did not get theirs stored.
int64_t SendTapesAtOnce(const std::string& address) {
  const auto tape = std::make_shared<const std::string>(MakeTape(absl::GetFlag(FLAGS_tape_bytes)).SerializeAsString());
  const absl::Time start = absl::Now();
  std::vector<std::unique_ptr<Agent>> agents;
  const int count = absl::GetFlag(FLAGS_tape_agents) > 0 ? absl::GetFlag(FLAGS_tape_agents) : absl::GetFlag(FLAGS_streams);
  for (int i = 0; i < count; ++i) agents.push_back(std::make_unique<Agent>(address, "bench", i, false, tape));
  const auto missing = [&] {
    return std::count_if(agents.begin(), agents.end(), [](const auto& agent) { return !agent->tape_stored() || agent->ended(); });
  };
  while (missing() > 0 && absl::Now() - start < absl::GetFlag(FLAGS_connect_timeout)) absl::SleepFor(absl::Milliseconds(20));
  const int64_t failed = missing();
  std::cout << absl::StrFormat("%d agents reconnected and sent %d bytes each in %.1f s, %d failed\n", agents.size(), tape->size(),
                               absl::ToDoubleSeconds(absl::Now() - start), failed);
  for (const auto& agent : agents) agent->Stop();
  return failed;
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
  // The dead jobs' agents come last; they are no part of the figures.
  std::vector<std::unique_ptr<Agent>> all;
  const int streams = absl::GetFlag(FLAGS_streams), dead = absl::GetFlag(FLAGS_dead_jobs) * absl::GetFlag(FLAGS_ranks);
  for (int i = 0; i < streams + dead; ++i) {
    const bool counts = i < streams;
    all.push_back(std::make_unique<Agent>(server.address(), counts ? "bench" : "dead", counts ? i : i - streams, per_second == 0));
  }
  const absl::Span<const std::unique_ptr<Agent>> agents = absl::MakeConstSpan(all).first(streams);
  const absl::Time patience = absl::Now() + absl::GetFlag(FLAGS_connect_timeout);
  const auto all_welcomed = [&] { return std::all_of(all.begin(), all.end(), [](const auto& a) { return a->welcomed(); }); };
  while (!all_welcomed() && absl::Now() < patience) absl::SleepFor(absl::Milliseconds(50));

  for (const auto& agent : agents) agent->Measure(true);
  const absl::Time start = absl::Now();
  const double cpu_before = server.CpuSeconds();
  const absl::Time end = start + absl::GetFlag(FLAGS_duration);
  if (per_second == 0) {
    for (const auto& agent : all) agent->Report();
    absl::SleepFor(end - absl::Now());
  } else {
    ReportInTurn(all, per_second, end);
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
  for (const auto& agent : all) agent->Stop();
  if (absl::GetFlag(FLAGS_tape_bytes) > 0) failed += SendTapesAtOnce(server.address());
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
                   bytes / static_cast<int64_t>(all.size()), failed)
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
