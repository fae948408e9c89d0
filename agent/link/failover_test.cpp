// Two servers on one PostgreSQL database: the ranks move over when the leader dies, when the database restarts, and never hold
// different plans.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "agent/link/testing/linked_ranks.h"
#include "server/store/testing/postgres_server.h"
#include "server/testing/server_process.h"

namespace tidetape::link {
namespace {

using server::PostgresServer;
using server::ServerProcess;

// Seconds until both ranks follow a plan that was asked for after `what`.
int64_t MoveOver(LinkedRanks& ranks, int64_t generation, int64_t limit, const char* what) {
  const auto start = std::chrono::steady_clock::now();
  ranks.SetMemoryLimit(limit);
  const int64_t next = ranks.AwaitPlanAbove(generation);
  const std::chrono::duration<double> away = std::chrono::steady_clock::now() - start;
  std::printf("%s: both ranks have a new plan after %.2f s\n", what, away.count());
  return next;
}

TEST(Failover, RanksMoveOverAndHoldOnePlan) {
  PostgresServer postgres;
  ServerProcess first({"--store=" + postgres.Connection("failover")}), second({"--store=" + postgres.Connection("failover")});
  ASSERT_TRUE(first.Start());
  int64_t generation = 0;
  {
    LinkedRanks alone(first.address(), 2);
    alone.PutTapesAndReport(1);
    generation = alone.AwaitPlanAbove(0);
    ASSERT_GT(generation, 0);
  }
  ASSERT_TRUE(second.Start());
  {
    // Ranks that know only the server that stands by are sent to the leader.
    LinkedRanks sent_on(second.address(), 2);
    generation = MoveOver(sent_on, generation, 1950, "sent on to the leader");
    ASSERT_GT(generation, 0);
  }
  LinkedRanks both(first.address() + "," + second.address(), 2);
  both.PutTapesAndReport(2);
  generation = MoveOver(both, generation, 1900, "nothing happened");
  ASSERT_GT(generation, 0);

  ServerProcess* leader = &first;
  ServerProcess* other = &second;
  int64_t limit = 1850;
  for (int life = 0; life < 3; ++life) {
    leader->Stop(SIGKILL);
    generation = MoveOver(both, generation, limit, "leader killed");
    ASSERT_GT(generation, 0);
    limit -= 50;
    ASSERT_TRUE(leader->Start());
    std::swap(leader, other);
  }
  postgres.Stop(SIGINT);
  postgres.Start();
  generation = MoveOver(both, generation, limit, "PostgreSQL restarted");
  ASSERT_GT(generation, 0);
  EXPECT_EQ(leader->Stop(SIGTERM), 0);
  EXPECT_GT(MoveOver(both, generation, limit - 50, "leader stopped"), generation);
}

// A leader that stands still for longer than its lease must not come back as one.
TEST(Failover, ALeaderThatStoodStillEnds) {
  PostgresServer postgres;
  ServerProcess first({"--store=" + postgres.Connection("still")}), second({"--store=" + postgres.Connection("still")});
  ASSERT_TRUE(first.Start());
  int64_t generation = 0;
  {
    LinkedRanks ranks(first.address(), 2);
    ranks.PutTapesAndReport(1);
    generation = ranks.AwaitPlanAbove(0);
    ASSERT_GT(generation, 0);
  }
  ASSERT_TRUE(second.Start());
  kill(first.pid(), SIGSTOP);
  LinkedRanks fresh(second.address(), 2);
  ASSERT_TRUE(fresh.AwaitConnected()) << fresh.LastError();
  kill(first.pid(), SIGCONT);
  EXPECT_EQ(first.Stop(0), 1);
  EXPECT_GT(MoveOver(fresh, generation, 1800, "leader stood still"), generation);
}

}  // namespace
}  // namespace tidetape::link
