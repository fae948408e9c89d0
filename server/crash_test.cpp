// At random moments under load the server is killed, its database restarted, or the leader of two servers killed. Whoever answers
// afterwards knows whatever was acknowledged, and all ranks hold the same plans.
//
// TIDETAPE_KILLS says how often. What was acknowledged is taken from the agents' own logs, read while nobody can acknowledge.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "server/store/testing/postgres_server.h"
#include "server/testing/fake_agent.h"
#include "server/testing/logging_agent.h"
#include "server/testing/server_process.h"

namespace tidetape::server {
namespace {

using Stub = v1::PlannerService::Stub;

constexpr int kJobs = 2, kRanks = 3;

int Kills() {
  const char* kills = std::getenv("TIDETAPE_KILLS");
  return kills == nullptr ? 6 : std::atoi(kills);
}

std::string JobName(int job) { return "job" + std::to_string(job); }

template <typename Request, typename Response>
grpc::Status Call(Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*), const Request& request,
                  Response& response) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
  return (stub.*method)(&context, request, &response);
}

// Changes the limits of all jobs all the time, so that new plans come, and notes what was answered.
class Operator {
 public:
  explicit Operator(std::vector<std::string> servers) : servers_(std::move(servers)) {
    thread_ = std::thread([this] {
      for (size_t server = 0; !stopping_; ++server) {
        const auto stub = v1::PlannerService::NewStub(ConnectTo(servers_[server % servers_.size()]));
        while (!stopping_ && Change(*stub)) absl::SleepFor(absl::Milliseconds(7));
        absl::SleepFor(absl::Milliseconds(5));
      }
    });
  }
  ~Operator() {
    stopping_ = true;
    thread_.join();
  }

  // Limits of a job that the server may have now: the one that was answered last, and those that were asked for since.
  std::vector<int64_t> PossibleLimits(int job) const {
    absl::MutexLock lock(&mutex_);
    return possible_[job];
  }

 private:
  bool Change(Stub& stub) {
    const int job = ++changes_ % kJobs;
    const int64_t limit = 1100 + changes_ % 7 * 50;
    {
      absl::MutexLock lock(&mutex_);
      possible_[job].push_back(limit);
    }
    v1::SetConstraintsRequest request;
    request.set_job(JobName(job));
    request.mutable_constraints()->set_memory_limit_bytes(limit);
    v1::SetConstraintsResponse response;
    const grpc::Status status = Call(stub, &Stub::SetConstraints, request, response);
    absl::MutexLock lock(&mutex_);
    if (status.ok()) possible_[job] = {limit};
    return status.ok() || status.error_code() == grpc::NOT_FOUND;
  }

  const std::vector<std::string> servers_;
  std::atomic<bool> stopping_ = false;
  int changes_ = 0;
  mutable absl::Mutex mutex_;
  std::vector<int64_t> possible_[kJobs] ABSL_GUARDED_BY(mutex_) = {{-2}, {-2}};  // -2: none set
  std::thread thread_;
};

// Servers with one store, ranks that report to them all the time, and an operator.
class Cluster {
 public:
  Cluster(const std::string& store, int servers) {
    std::vector<std::string> addresses;
    for (int i = 0; i < servers; ++i) {
      servers_.push_back(std::make_unique<ServerProcess>(std::vector<std::string>{"--store=" + store}));
      EXPECT_TRUE(servers_.back()->Start());
      addresses.push_back(servers_.back()->address());
    }
    for (int job = 0; job < kJobs; ++job) {
      for (int rank = 0; rank < kRanks; ++rank) {
        v1::Hello hello = ExampleHello(rank, kRanks);
        hello.set_job(JobName(job));
        agents_.push_back(std::make_unique<LoggingAgent>(addresses, hello));
      }
    }
    operator_ = std::make_unique<Operator>(addresses);
  }

  // Disturbs the cluster so many times. `disturb` calls NoteLogs() when nobody can acknowledge any more, and NoteMended() when the
  // cluster is to come back.
  void Run(int times, const std::function<void()>& disturb) {
    std::mt19937_64 random(20'240'229);
    absl::Duration longest_answer, longest_move, all_answers, all_moves;
    for (int i = 0; i < times && !testing::Test::HasFailure(); ++i) {
      SCOPED_TRACE(i);
      absl::SleepFor(absl::Milliseconds(std::uniform_int_distribution<int>(1, 400)(random)));
      disturb();
      const size_t leader = FindLeader();
      const absl::Duration answer = absl::Now() - mended_;
      const auto stub = v1::PlannerService::NewStub(ConnectTo(servers_[leader]->address()));
      for (int job = 0; job < kJobs; ++job) CheckJob(*stub, job, &logs_[job * kRanks]);
      const absl::Duration move = AwaitAcknowledgements();
      longest_answer = std::max(longest_answer, answer);
      longest_move = std::max(longest_move, move);
      all_answers += answer;
      all_moves += move;
      for (const auto& server : servers_) {
        if (server->pid() == 0) {
          ASSERT_TRUE(server->Start());
        }
      }
    }
    int64_t reports = 0, plans = 0, streams = 0;
    for (const auto& agent : agents_) {
      reports += agent->log().acknowledged_reports;
      plans = std::max(plans, static_cast<int64_t>(agent->log().plans.size()));
      streams += agent->log().streams;
    }
    const auto milliseconds = [](absl::Duration duration) { return absl::ToDoubleMilliseconds(duration); };
    std::printf(
        "%d times: %ld reports acknowledged over %ld streams, %ld plans; answers again after %.0f ms in the mean and %.0f ms at "
        "most, acknowledges all agents after %.0f ms and %.0f ms\n",
        times, reports, streams, plans, milliseconds(all_answers / std::max(times, 1)), milliseconds(longest_answer),
        milliseconds(all_moves / std::max(times, 1)), milliseconds(longest_move));
    // The load was one.
    EXPECT_GT(reports, 20 * times);
    EXPECT_GT(plans, times / 2);
    EXPECT_GT(streams, times);
  }

  ServerProcess& server(size_t index) { return *servers_[index]; }

  // Which server answers. Waits for one.
  size_t FindLeader() const {
    std::vector<std::unique_ptr<Stub>> stubs;
    for (const auto& server : servers_) stubs.push_back(v1::PlannerService::NewStub(ConnectTo(server->address())));
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    for (size_t i = 0; absl::Now() < deadline; ++i) {
      v1::ListJobsResponse jobs;
      const size_t server = i % servers_.size();
      if (servers_[server]->pid() != 0 && Call(*stubs[server], &Stub::ListJobs, v1::ListJobsRequest(), jobs).ok()) return server;
      absl::SleepFor(absl::Milliseconds(1));
    }
    ADD_FAILURE() << "no server answers";
    return 0;
  }

  void NoteLogs() {
    // What comes to an agent now was on its way before.
    absl::SleepFor(absl::Milliseconds(30));
    logs_.clear();
    for (const auto& agent : agents_) logs_.push_back(agent->log());
  }
  void NoteMended() { mended_ = absl::Now(); }

 private:
  // Until every agent was acknowledged something that its log had not yet; returns how long after NoteMended() that was.
  absl::Duration AwaitAcknowledgements() const {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    for (size_t i = 0; i < agents_.size(); ++i) {
      while (agents_[i]->log().acknowledged_reports == logs_[i].acknowledged_reports) {
        if (absl::Now() > deadline) {
          ADD_FAILURE() << "agent " << i << " is not acknowledged anything";
          return absl::InfiniteDuration();
        }
        absl::SleepFor(absl::Milliseconds(1));
      }
    }
    return absl::Now() - mended_;
  }

  void CheckJob(Stub& stub, int job, const LoggingAgent::Log* logs) {
    // Before the server, because it may be changed meanwhile.
    const std::vector<int64_t> limits_before = operator_->PossibleLimits(job);
    v1::GetJobRequest request;
    request.set_job(JobName(job));
    v1::GetJobResponse known;
    const grpc::Status status = Call(stub, &Stub::GetJob, request, known);
    int64_t acknowledged = 0, newest = 0;
    std::map<int64_t, std::string> plans;
    for (int rank = 0; rank < kRanks; ++rank) {
      const LoggingAgent::Log& log = logs[rank];
      acknowledged += log.acknowledged_reports;
      EXPECT_EQ(log.contradictions, 0);
      for (const auto& [generation, plan] : log.plans) {
        newest = std::max(newest, generation);
        EXPECT_EQ(plans.emplace(generation, plan).first->second, plan) << "ranks hold different plans of generation " << generation;
      }
    }
    if (acknowledged == 0 && !status.ok()) return;  // killed before the job's first report
    ASSERT_TRUE(status.ok()) << status.error_message();
    for (int rank = 0; rank < kRanks; ++rank) {
      const LoggingAgent::Log& log = logs[rank];
      if (log.acknowledged_reports == 0) continue;
      ASSERT_GT(known.ranks_size(), rank);
      EXPECT_GE(known.ranks(rank).reports(), log.acknowledged_reports) << JobName(job) << " rank " << rank;
      EXPECT_GE(known.ranks(rank).last_report().step(), log.acknowledged_step) << JobName(job) << " rank " << rank;
    }
    EXPECT_GE(known.summary().generation(), newest) << "a rank holds a plan that the store has not";
    const int64_t limit = known.constraints().has_memory_limit_bytes() ? known.constraints().memory_limit_bytes() : -2;
    std::vector<int64_t> possible = limits_before;
    for (const int64_t since : operator_->PossibleLimits(job)) possible.push_back(since);
    EXPECT_THAT(possible, testing::Contains(limit));
  }

  std::vector<std::unique_ptr<ServerProcess>> servers_;
  std::vector<std::unique_ptr<LoggingAgent>> agents_;
  std::unique_ptr<Operator> operator_;
  std::vector<LoggingAgent::Log> logs_;
  absl::Time mended_;
};

void KillTheServer(Cluster& cluster) {
  cluster.server(0).Stop(SIGKILL);
  cluster.NoteLogs();
  cluster.NoteMended();
  ASSERT_TRUE(cluster.server(0).Start());
}

TEST(Crash, SqliteLosesNothing) {
  const std::string folder = testing::TempDir() + "/crash";
  std::filesystem::remove_all(folder);
  Cluster cluster("sqlite:" + folder + "/server.db", 1);
  cluster.Run(Kills(), [&] { KillTheServer(cluster); });
}

TEST(Crash, PostgresLosesNothing) {
  const PostgresServer postgres;
  Cluster cluster(postgres.Connection("crash"), 1);
  cluster.Run(Kills(), [&] { KillTheServer(cluster); });
}

TEST(Crash, ARestartOfPostgresLosesNothing) {
  PostgresServer postgres;
  Cluster cluster(postgres.Connection("restart"), 1);
  int restarts = 0;
  cluster.Run(Kills(), [&] {
    postgres.Stop(++restarts % 2 == 0 ? SIGINT : SIGQUIT);
    cluster.NoteLogs();
    postgres.Start();
    cluster.NoteMended();
  });
}

TEST(Crash, AnotherServerTakesOverFromALeaderThatIsKilled) {
  const PostgresServer postgres;
  Cluster cluster(postgres.Connection("leader"), 2);
  cluster.Run(std::max(Kills() / 4, 2), [&] {
    const size_t leader = cluster.FindLeader();
    cluster.NoteMended();
    cluster.server(leader).Stop(SIGKILL);
    cluster.NoteLogs();
  });
}

}  // namespace
}  // namespace tidetape::server
