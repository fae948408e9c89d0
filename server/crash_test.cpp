// The server is killed at random moments under load, and knows afterwards whatever it had acknowledged.
//
// TIDETAPE_KILLS says how often. What was acknowledged is taken from the agents' own logs, read while the server is dead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
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
  explicit Operator(std::string address) : address_(std::move(address)) {
    thread_ = std::thread([this] {
      while (!stopping_) {
        const auto stub = v1::PlannerService::NewStub(ConnectTo(address_));
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

  const std::string address_;
  std::atomic<bool> stopping_ = false;
  int changes_ = 0;
  mutable absl::Mutex mutex_;
  std::vector<int64_t> possible_[kJobs] ABSL_GUARDED_BY(mutex_) = {{-2}, {-2}};  // -2: none set
  std::thread thread_;
};

class Crashes {
 public:
  explicit Crashes(const std::string& store) : server_({"--store=" + store}) {
    EXPECT_TRUE(server_.Start());
    for (int job = 0; job < kJobs; ++job) {
      for (int rank = 0; rank < kRanks; ++rank) {
        v1::Hello hello = ExampleHello(rank, kRanks);
        hello.set_job(JobName(job));
        agents_.push_back(std::make_unique<LoggingAgent>(server_.address(), hello));
      }
    }
    operator_ = std::make_unique<Operator>(server_.address());
  }

  void Run(int kills) {
    std::mt19937_64 random(20'240'229);
    absl::Duration longest = absl::ZeroDuration(), total = absl::ZeroDuration();
    for (int i = 0; i < kills && !testing::Test::HasFailure(); ++i) {
      SCOPED_TRACE(i);
      absl::SleepFor(absl::Milliseconds(std::uniform_int_distribution<int>(1, 400)(random)));
      server_.Stop(SIGKILL);
      // What comes to an agent now was on its way before the kill.
      absl::SleepFor(absl::Milliseconds(30));
      std::vector<LoggingAgent::Log> logs;
      for (const auto& agent : agents_) logs.push_back(agent->log());
      const absl::Time start = absl::Now();
      ASSERT_TRUE(server_.Start());
      const auto stub = v1::PlannerService::NewStub(ConnectTo(server_.address()));
      AwaitAnswers(*stub);
      const absl::Duration recovery = absl::Now() - start;
      longest = std::max(longest, recovery);
      total += recovery;
      for (int job = 0; job < kJobs; ++job) CheckJob(*stub, job, &logs[job * kRanks]);
    }
    int64_t reports = 0, plans = 0, streams = 0;
    for (const auto& agent : agents_) {
      reports += agent->log().acknowledged_reports;
      plans = std::max(plans, static_cast<int64_t>(agent->log().plans.size()));
      streams += agent->log().streams;
    }
    std::printf("%d kills: %ld reports acknowledged over %ld streams, %ld plans; recovery %.0f ms in the mean, %.0f ms at most\n",
                kills, reports, streams, plans, absl::ToDoubleMilliseconds(total / std::max(kills, 1)),
                absl::ToDoubleMilliseconds(longest));
    // The load was one.
    EXPECT_GT(reports, 20 * kills);
    EXPECT_GT(plans, kills / 2);
    EXPECT_GT(streams, kills);
  }

 private:
  static void AwaitAnswers(Stub& stub) {
    v1::ListJobsResponse jobs;
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (!Call(stub, &Stub::ListJobs, v1::ListJobsRequest(), jobs).ok()) {
      ASSERT_LT(absl::Now(), deadline) << "the server does not answer";
      absl::SleepFor(absl::Milliseconds(1));
    }
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

  ServerProcess server_;
  std::vector<std::unique_ptr<LoggingAgent>> agents_;
  std::unique_ptr<Operator> operator_;
};

TEST(Crash, SqliteLosesNothing) {
  const std::string folder = testing::TempDir() + "/crash";
  std::filesystem::remove_all(folder);
  Crashes crashes("sqlite:" + folder + "/server.db");
  crashes.Run(Kills());
}

TEST(Crash, PostgresLosesNothing) {
  const PostgresServer postgres;
  Crashes crashes(postgres.Connection("crash"));
  crashes.Run(Kills());
}

}  // namespace
}  // namespace tidetape::server
