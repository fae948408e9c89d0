#include "server/store/postgres_store.h"

#include <signal.h>

#include <thread>

#include "server/store/contract_suite.h"
#include "server/store/durable_contract_suite.h"
#include "server/store/postgres_database.h"
#include "server/store/schema_suite.h"
#include "server/store/testing/postgres_server.h"

namespace tidetape::server {
namespace {

using testing::HasSubstr;

// One for all tests, because making one takes a second.
PostgresServer& Server() {
  static PostgresServer server;
  return server;
}

std::unique_ptr<PostgresStore> MakeStore(const std::string& place, absl::Duration duration = absl::Seconds(2)) {
  return PostgresStore::Make(Server().Connection(place), duration).value();
}

// Takes over the lease that an earlier store at the place may still have.
void TakeOver(PostgresStore& store, const std::string& address = "here:1") {
  static SystemClock clock;
  std::optional<int64_t> term;
  while (!term.has_value()) {
    term = store.lease().TryTake(address).value();
    absl::SleepFor(absl::Milliseconds(5));
  }
  const absl::Status status = store.Lead(*term, &clock);
  ASSERT_TRUE(status.ok()) << status;
}

const OpenStore open_store = [](const std::string& place) {
  std::shared_ptr<PostgresStore> leading = MakeStore(place, absl::Milliseconds(50));
  TakeOver(*leading);
  return std::shared_ptr<Store>(leading, &leading->store());
};

INSTANTIATE_TEST_SUITE_P(Postgres, StoreContract, testing::Values(open_store));
INSTANTIATE_TEST_SUITE_P(Postgres, DurableStoreContract, testing::Values(open_store));

INSTANTIATE_TEST_SUITE_P(Postgres, SchemaSuite, testing::Values([](const std::string& place) -> std::unique_ptr<SqlDatabase> {
                           return PostgresDatabase::Make(Server().Connection(place)).value();
                         }));

TEST(PostgresStore, OnlyTheLeaderWrites) {
  const auto first = MakeStore("onlyleader"), second = MakeStore("onlyleader", absl::Milliseconds(1));
  EXPECT_TRUE(absl::IsUnavailable(first->store().CreateJob("a")));
  TakeOver(*first, "first:1");
  EXPECT_TRUE(first->store().CreateJob("a").ok());
  EXPECT_FALSE(second->lease().TryTake("second:2").value().has_value());
  EXPECT_EQ(second->lease().LeaderAddress().value(), "first:1");
  EXPECT_TRUE(absl::IsUnavailable(second->store().CreateJob("b")));

  // The first one stands still for longer than its lease runs, and does not know.
  TakeOver(*second, "second:2");
  EXPECT_EQ(first->lease().LeaderAddress().value(), "second:2");
  const absl::Status late = first->store().CreateJob("c");
  EXPECT_TRUE(absl::IsUnavailable(late)) << late;
  EXPECT_THAT(std::string(late.message()), HasSubstr("does not lead any more"));
  EXPECT_TRUE(second->store().CreateJob("b").ok());
  EXPECT_THAT(second->store().ListJobs().value(), testing::ElementsAre("a", "b"));
}

TEST(PostgresStore, ALeaseIsRenewedAlsoLateUnlessAnotherServerTookIt) {
  const auto first = MakeStore("renew", absl::Milliseconds(1)), second = MakeStore("renew");
  const int64_t term = first->lease().TryTake("first:1").value().value();
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_TRUE(first->lease().Renew(term).ok());
  absl::SleepFor(absl::Milliseconds(20));
  const int64_t next = second->lease().TryTake("second:2").value().value();
  EXPECT_EQ(next, term + 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(first->lease().Renew(term)));
  EXPECT_TRUE(first->lease().Release(term).ok());  // it is not the first one's any more
  EXPECT_FALSE(first->lease().TryTake("first:1").value().has_value());
  EXPECT_TRUE(second->lease().Release(next).ok());
  EXPECT_TRUE(first->lease().TryTake("first:1").value().has_value());
}

// A server that was killed and started again need not wait for itself.
TEST(PostgresStore, AnEarlierProcessAtTheAddressHasNoLease) {
  const auto killed = MakeStore("same"), restarted = MakeStore("same");
  TakeOver(*killed, "here:1");
  EXPECT_TRUE(killed->store().CreateJob("a").ok());
  EXPECT_EQ(restarted->lease().TryTake("here:1").value().value(), 2);
  EXPECT_TRUE(absl::IsUnavailable(killed->store().CreateJob("b")));
}

// Of many servers that try at once, one gets each term.
TEST(PostgresStore, TermsAreNotShared) {
  constexpr int kServers = 4, kTerms = 30;
  std::vector<std::unique_ptr<PostgresStore>> stores;
  for (int i = 0; i < kServers; ++i) stores.push_back(MakeStore("terms", absl::Microseconds(1)));
  std::vector<std::vector<int64_t>> taken(kServers);
  std::vector<std::thread> threads;
  for (int i = 0; i < kServers; ++i) {
    threads.emplace_back([&, i] {
      while (taken[i].size() < kTerms) {
        if (const auto term = stores[i]->lease().TryTake("x:1").value(); term.has_value()) taken[i].push_back(*term);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<int64_t> all;
  for (const auto& terms : taken) all.insert(terms.begin(), terms.end());
  EXPECT_EQ(all.size(), kServers * kTerms);
}

TEST(PostgresStore, ComesBackByItselfWithTheDatabase) {
  const auto store = MakeStore("comesback");
  TakeOver(*store);
  ASSERT_TRUE(store->store().CreateJob("a").ok());
  for (const int signal : {SIGINT, SIGQUIT}) {
    Server().Stop(signal);
    EXPECT_TRUE(absl::IsUnavailable(store->store().CreateJob("b")));
    const absl::Status unread = store->store().ListJobs().status();
    EXPECT_TRUE(absl::IsUnavailable(unread)) << unread;
    Server().Start();
    EXPECT_THAT(store->store().ListJobs().value(), testing::ElementsAre("a"));
    EXPECT_TRUE(store->store().Check().ok());
  }
}

// The database ends the connection under a transaction, and under an idle connection.
TEST(PostgresStore, AConnectionThatIsCutIsMadeAnew) {
  const std::string connection = Server().Connection("cut");
  const auto database = PostgresDatabase::Make(connection).value();
  const auto admin = PostgresDatabase::Make(Server().AdminConnection()).value();
  const auto cut = [&] {
    const int64_t pid = database->Execute("SELECT CAST(pg_backend_pid() AS BIGINT)", {}).value().rows[0][0].integer;
    ASSERT_TRUE(admin->Execute("SELECT CAST(pg_terminate_backend(CAST($1 AS INT)) AS TEXT)", {SqlValue::Integer(pid)}).ok());
  };
  ASSERT_TRUE(database->Execute("CREATE TABLE t (x BIGINT)", {}).ok());
  cut();
  EXPECT_TRUE(database->Execute("SELECT x FROM t", {}).ok());
  ASSERT_TRUE(database->Begin().ok());
  ASSERT_TRUE(database->Execute("INSERT INTO t (x) VALUES (1)", {}).ok());
  cut();
  EXPECT_TRUE(absl::IsUnavailable(database->Execute("INSERT INTO t (x) VALUES (2)", {}).status()));
  // Not outside of the transaction that is gone.
  EXPECT_TRUE(absl::IsUnavailable(database->Execute("INSERT INTO t (x) VALUES (3)", {}).status()));
  EXPECT_FALSE(database->Commit().ok());
  database->Rollback();
  EXPECT_TRUE(database->Execute("SELECT x FROM t", {}).value().rows.empty());
  ASSERT_TRUE(database->Begin().ok());
  ASSERT_TRUE(database->Execute("INSERT INTO t (x) VALUES (4)", {}).ok());
  ASSERT_TRUE(database->Commit().ok());
  EXPECT_EQ(database->Execute("SELECT x FROM t", {}).value().rows.size(), 1);
}

TEST(PostgresStore, NamesThePlaceWithoutThePassword) {
  const auto database = PostgresDatabase::Make("postgresql://ada:s3cret@127.0.0.1:1/tapes").value();
  EXPECT_EQ(database->place(), "PostgreSQL database tapes at 127.0.0.1:1");
  const absl::Status away = database->Execute("SELECT 1", {}).status();
  EXPECT_TRUE(absl::IsUnavailable(away)) << away;
  EXPECT_EQ(std::string(away.message()).find("s3cret"), std::string::npos) << away;
  const absl::Status unreadable = PostgresDatabase::Make("postgresql://ada:s3cret@[oops/").status();
  EXPECT_TRUE(absl::IsInvalidArgument(unreadable));
  EXPECT_EQ(std::string(unreadable.message()).find("s3cret"), std::string::npos) << unreadable;
}

}  // namespace
}  // namespace tidetape::server
