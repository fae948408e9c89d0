// How many agents one server carries: N streams, each with a connection of its own, report to a server in a process of its own.
//
// The server keeps its jobs in SQLite with full synchronisation unless --store says otherwise, so an acknowledgement means durable.
// With --dead_jobs, the agents of so many other jobs report beside them, as those of trainings that nobody looks after any more;
// the figures are of the others' streams. With --tape_bytes, all agents reconnect at once after the measurement (--tape_agents of
// them, if set), and each sends a tape of that size.
//
// The last line is JSON: {"streams", "reports_per_second", "ack_p50_ms", "ack_p99_ms", "cpu_us_per_report", "bytes_per_stream",
// "failed_streams"}. The time of an acknowledgement runs from handing the report to HTTP/2 to reading the answer, client and server
// on one machine; CPU and memory are the server's own, from /proc.
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/testing/light_stream.h"
#include "tidetape/v1/planner_service.pb.h"

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
class Agent {
 public:
  Agent(const std::string& job, int number, bool eager, std::shared_ptr<const std::string> tape = nullptr)
      : eager_(eager), tape_(std::move(tape)) {
    const int ranks = absl::GetFlag(FLAGS_ranks);
    v1::Hello* hello = request_.mutable_hello();
    hello->set_job(absl::StrFormat("%s-%d", job, number / ranks));
    hello->set_incarnation("bench");
    hello->set_rank(number % ranks);
    hello->set_world_size(ranks);
  }

  absl::Status Connect(const std::string& address) {
    auto stream =
        LightStream::Open(address, "/tidetape.v1.PlannerService/Connect", [this](std::string_view message) { Receive(message); });
    if (!stream.ok()) return stream.status();
    stream_ = *std::move(stream);
    Send();
    return absl::OkStatus();
  }

  LightStream& stream() { return *stream_; }

  // Sends a report unless the last one is still under way.
  void Report() {
    if (!welcomed_ || acknowledged_ < sequence_ || ended()) return;
    v1::StepReport* report = request_.mutable_step_report();
    report->set_step(sequence_);
    report->set_step_seconds(1);
    report->set_step_peak_bytes(int64_t{70} << 30);
    report->set_replay_seconds(0.1);
    Send();
  }

  // From now on.
  void Measure() { measuring_ = true; }

  // The server has all of the tape.
  bool tape_stored() const { return tape_offset_ == tape_->size() && acknowledged_ == sequence_; }
  bool welcomed() const { return welcomed_; }
  bool ended() const { return stream_->ended(); }
  const std::vector<double>& millis() const { return millis_; }

 private:
  void Receive(std::string_view message) {
    response_.ParseFromArray(message.data(), static_cast<int>(message.size()));
    if (response_.has_welcome()) {
      welcomed_ = true;
      SendTape();
    }
    if (response_.has_ack()) {
      acknowledged_ = response_.ack().sequence();
      if (acknowledged_ > 1 && measuring_) millis_.push_back(absl::ToDoubleMilliseconds(absl::Now() - sent_));
      if (eager_) Report();
    }
  }

  void SendTape() {
    while (tape_ != nullptr && tape_offset_ < tape_->size()) {
      v1::TapeChunk* chunk = request_.mutable_tape_chunk();
      chunk->set_structure_hash(1);
      chunk->set_index(static_cast<int32_t>(tape_offset_ / kChunkBytes));
      chunk->set_count(static_cast<int32_t>((tape_->size() + kChunkBytes - 1) / kChunkBytes));
      chunk->set_data(tape_->substr(tape_offset_, kChunkBytes));
      tape_offset_ += chunk->data().size();
      Send();
    }
  }

  void Send() {
    request_.set_sequence(++sequence_);
    sent_ = absl::Now();
    stream_->Write(request_);
  }

  static constexpr size_t kChunkBytes = 1 << 20;

  const bool eager_;
  const std::shared_ptr<const std::string> tape_;
  std::unique_ptr<LightStream> stream_;
  v1::ConnectRequest request_;
  v1::ConnectResponse response_;
  size_t tape_offset_ = 0;
  int64_t sequence_ = 0;
  int64_t acknowledged_ = 0;
  absl::Time sent_;
  bool welcomed_ = false;
  bool measuring_ = false;
  std::vector<double> millis_;
};

// Many agents on this thread.
class Crowd {
 public:
  Crowd() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {}
  ~Crowd() { close(epoll_); }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  absl::Status Add(const std::string& address, std::unique_ptr<Agent> agent) {
    if (absl::Status status = agent->Connect(address); !status.ok()) return status;
    epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data = {.ptr = agent.get()}};
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, agent->stream().fd(), &event) != 0) return absl::ErrnoToStatus(errno, "epoll_ctl");
    agents_.push_back(std::move(agent));
    return absl::OkStatus();
  }

  absl::Span<const std::unique_ptr<Agent>> agents() const { return agents_; }

  // Lets the agents send and receive until then.
  void RunUntil(absl::Time time) {
    epoll_event events[256];
    do {
      const timespec wait = absl::ToTimespec(std::max(time - absl::Now(), absl::ZeroDuration()));
      const int count = epoll_pwait2(epoll_, events, std::size(events), &wait, nullptr);
      for (int i = 0; i < count; ++i) static_cast<Agent*>(events[i].data.ptr)->stream().Progress();
    } while (absl::Now() < time);
  }

  // Until `done` holds, or for as long as --connect_timeout.
  void RunUntil(const std::function<bool()>& done) {
    const absl::Time patience = absl::Now() + absl::GetFlag(FLAGS_connect_timeout);
    while (!done() && absl::Now() < patience) RunUntil(absl::Now() + absl::Milliseconds(50));
  }

 private:
  const int epoll_;
  std::vector<std::unique_ptr<Agent>> agents_;
};

double Quantile(const std::vector<double>& sorted, double q) {
  return sorted.empty() ? NAN : sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1))];
}

// Every stream once in each period, evenly spread over it.
void ReportInTurn(Crowd& crowd, double per_second, absl::Time end) {
  const auto agents = crowd.agents();
  const absl::Duration gap = absl::Seconds(1 / per_second) / static_cast<double>(agents.size());
  absl::Time next = absl::Now();
  for (size_t i = 0; absl::Now() < end; i = (i + 1) % agents.size()) {
    agents[i]->Report();
    next += gap;
    crowd.RunUntil(next);
  }
}

// All agents come back at once, each with a tape. Returns how many did not get theirs stored.
absl::StatusOr<int64_t> SendTapesAtOnce(const std::string& address) {
  const auto tape = std::make_shared<const std::string>(MakeTape(absl::GetFlag(FLAGS_tape_bytes)).SerializeAsString());
  const absl::Time start = absl::Now();
  Crowd crowd;
  const int count = absl::GetFlag(FLAGS_tape_agents) > 0 ? absl::GetFlag(FLAGS_tape_agents) : absl::GetFlag(FLAGS_streams);
  for (int i = 0; i < count; ++i) {
    if (absl::Status status = crowd.Add(address, std::make_unique<Agent>("bench", i, false, tape)); !status.ok()) return status;
  }
  const auto missing = [&] {
    return std::count_if(crowd.agents().begin(), crowd.agents().end(),
                         [](const auto& agent) { return !agent->tape_stored() || agent->ended(); });
  };
  crowd.RunUntil([&] { return missing() == 0; });
  const int64_t failed = missing();
  std::cout << absl::StrFormat("%d agents reconnected and sent %d bytes each in %.1f s, %d failed\n", count, tape->size(),
                               absl::ToDoubleSeconds(absl::Now() - start), failed);
  return failed;
}

int Fail(const absl::Status& status) {
  std::cerr << status.message() << "\n";
  return 1;
}

int Run() {
  // Two descriptors a stream and some to spare.
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);

  ServerProcess server;
  if (server.address().empty()) {
    return Fail(absl::UnavailableError(absl::StrCat("cannot start ", absl::GetFlag(FLAGS_server_binary), "; use --server_binary")));
  }
  const int64_t bytes_before = server.ResidentBytes();
  const double per_second = absl::GetFlag(FLAGS_reports_per_second);
  auto crowd = std::make_unique<Crowd>();
  // The dead jobs' agents come last; they are no part of the figures.
  const int streams = absl::GetFlag(FLAGS_streams), dead = absl::GetFlag(FLAGS_dead_jobs) * absl::GetFlag(FLAGS_ranks);
  for (int i = 0; i < streams + dead; ++i) {
    const bool counts = i < streams;
    auto agent = std::make_unique<Agent>(counts ? "bench" : "dead", counts ? i : i - streams, per_second == 0);
    if (absl::Status status = crowd->Add(server.address(), std::move(agent)); !status.ok()) return Fail(status);
  }
  const auto all = crowd->agents();
  const auto agents = all.first(streams);
  crowd->RunUntil([&] { return std::all_of(all.begin(), all.end(), [](const auto& a) { return a->welcomed(); }); });

  for (const auto& agent : agents) agent->Measure();
  const absl::Time start = absl::Now();
  const double cpu_before = server.CpuSeconds();
  const absl::Time end = start + absl::GetFlag(FLAGS_duration);
  if (per_second == 0) {
    for (const auto& agent : all) agent->Report();
    crowd->RunUntil(end);
  } else {
    ReportInTurn(*crowd, per_second, end);
  }
  const double cpu = server.CpuSeconds() - cpu_before;
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  const int64_t bytes = server.ResidentBytes() - bytes_before;
  const auto connections = static_cast<int64_t>(all.size());

  int64_t failed = 0;
  std::vector<double> millis;
  for (const auto& agent : agents) {
    if (!agent->welcomed() || agent->ended()) ++failed;
    millis.insert(millis.end(), agent->millis().begin(), agent->millis().end());
  }
  crowd.reset();
  if (absl::GetFlag(FLAGS_tape_bytes) > 0) {
    const absl::StatusOr<int64_t> without_tape = SendTapesAtOnce(server.address());
    if (!without_tape.ok()) return Fail(without_tape.status());
    failed += *without_tape;
  }
  if (millis.empty()) return Fail(absl::UnavailableError("no report was acknowledged"));
  std::sort(millis.begin(), millis.end());
  const auto reports = static_cast<double>(millis.size());
  std::cout << absl::StrFormat(
                   "{\"streams\": %d, \"reports_per_second\": %.1f, \"ack_p50_ms\": %.3f, \"ack_p99_ms\": %.3f, "
                   "\"cpu_us_per_report\": %.1f, \"bytes_per_stream\": %d, \"failed_streams\": %d}",
                   streams, reports / seconds, Quantile(millis, 0.5), Quantile(millis, 0.99), cpu / reports * 1e6,
                   bytes / connections, failed)
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
