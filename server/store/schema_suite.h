// Migrations as tests, for every SQL backend: a database of each older version, with content, becomes one of today's that still has
// it.
#ifndef TIDETAPE_SERVER_STORE_SCHEMA_SUITE_H_
#define TIDETAPE_SERVER_STORE_SCHEMA_SUITE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "server/store/sql_schema.h"
#include "server/store/sql_store.h"

namespace tidetape::server {

// Opens a connection to the database at a place; empty at first.
using OpenDatabase = std::function<std::unique_ptr<SqlDatabase>(const std::string& place)>;

// What version 1 could hold, written as its server did.
inline void FillVersion1(SqlDatabase& database) {
  v1::BlockTape tape;
  tape.set_structure_hash(5);
  tape.set_name("layers.0");
  v1::Plan plan;
  plan.set_job("old");
  plan.set_generation(7);
  v1::Constraints constraints;
  constraints.set_memory_limit_bytes(99);
  const auto run = [&](const std::string& sql, const std::vector<SqlValue>& values) {
    const auto result = database.Execute(sql, values);
    ASSERT_TRUE(result.ok()) << result.status();
  };
  run("INSERT INTO jobs (name, incarnation, generation, constraints) VALUES ($1, $2, $3, $4)",
      {SqlValue::Text("old"), SqlValue::Text("second"), SqlValue::Integer(7), SqlValue::Bytes(constraints.SerializeAsString())});
  for (const char* id : {"first", "second"}) {
    run("INSERT INTO incarnations (job, position, id, birth, world_size, first_seen_unix_micros, device, torch_version) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        {SqlValue::Text("old"), SqlValue::Integer(id[0] == 's'), SqlValue::Text(id), SqlValue::Integer(4), SqlValue::Integer(2),
         SqlValue::Integer(1'000'000), SqlValue::Bytes("cpu"), SqlValue::Bytes("2.14.1")});
  }
  run("INSERT INTO tapes (job, structure_hash, tape) VALUES ($1, $2, $3)",
      {SqlValue::Text("old"), SqlValue::Integer(5), SqlValue::Bytes(tape.SerializeAsString())});
  run("INSERT INTO plans (job, generation, plan) VALUES ($1, $2, $3)",
      {SqlValue::Text("old"), SqlValue::Integer(7), SqlValue::Bytes(plan.SerializeAsString())});
}

// What version 2 added.
inline void FillVersion2(SqlDatabase& database) {
  v1::StepReport report;
  report.set_step(12);
  v1::TapeCosts costs;
  costs.set_structure_hash(5);
  costs.add_cost_seconds(0.5);
  const auto ranks = database.Execute(
      "INSERT INTO ranks (job, rank, hello, report, profile, reports, held_generation, active_generation, plan_error, "
      "heard_unix_micros) VALUES ($1, 1, NULL, $2, NULL, 3, 7, 6, $3, 1000000)",
      {SqlValue::Text("old"), SqlValue::Bytes(report.SerializeAsString()), SqlValue::Bytes("")});
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  const auto rows = database.Execute("INSERT INTO costs (job, rank, structure_hash, costs) VALUES ($1, 1, 5, $2)",
                                     {SqlValue::Text("old"), SqlValue::Bytes(costs.SerializeAsString())});
  ASSERT_TRUE(rows.ok()) << rows.status();
}

class SchemaSuite : public testing::TestWithParam<OpenDatabase> {
 protected:
  static std::string NewPlace() {
    static int places = 0;
    return "schema" + std::to_string(getpid()) + "n" + std::to_string(++places);
  }

  const absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
};

TEST_P(SchemaSuite, EveryOlderVersionBecomesTodays) {
  const size_t newest = SchemaVersions().size();
  for (size_t version = 1; version <= newest; ++version) {
    SCOPED_TRACE(version);
    const std::string place = NewPlace();
    auto writer = GetParam()(place);
    ASSERT_TRUE(MigrateSchema(*writer, version, now_).ok());
    FillVersion1(*writer);
    if (version >= 2) FillVersion2(*writer);
    const absl::Status migrated = MigrateSchema(*writer, newest, now_);
    ASSERT_TRUE(migrated.ok()) << migrated;
    EXPECT_EQ(SchemaVersion(*writer).value(), newest);

    SqlStore store(std::move(writer), GetParam()(place), {});
    EXPECT_THAT(store.ListJobs().value(), testing::ElementsAre("old"));
    const auto incarnations = store.ListIncarnations("old").value();
    ASSERT_EQ(incarnations.size(), 2);
    EXPECT_EQ(incarnations[1].id, "second");
    EXPECT_EQ(incarnations[1].device, "cpu");
    EXPECT_EQ(store.GetTape("old", 5).value().name(), "layers.0");
    EXPECT_EQ(store.ListPlans("old", 9).value()[0].generation(), 7);
    EXPECT_EQ(store.GetConstraints("old").value().memory_limit_bytes(), 99);
    if (version >= 2) {
      EXPECT_EQ(store.ListRanks("old").value()[0].report->step(), 12);
      EXPECT_EQ(store.ListRanks("old").value()[0].reports, 3);
      EXPECT_EQ(store.ListCosts("old").value()[0].costs.cost_seconds(0), 0.5);
    } else {
      EXPECT_THAT(store.ListRanks("old").value(), testing::IsEmpty());
    }
    EXPECT_FALSE(store.GetJob("old").value().end.has_value());
    EXPECT_TRUE(store.PutEnd("old", JobEnd{now_, "finished", false}).ok());
    EXPECT_EQ(store.GetJob("old").value().end->reason, "finished");
    EXPECT_TRUE(store.PutKnownRun({1, 2}, v1::KnownRun(), now_, 1000).ok());
    EXPECT_TRUE(store.GetKnownRun({1, 2}).ok());
    EXPECT_TRUE(store.Check().ok());
  }
}

TEST_P(SchemaSuite, ANewerVersionIsRefusedAndLeftAsItIs) {
  const std::string place = NewPlace();
  auto database = GetParam()(place);
  ASSERT_TRUE(MigrateSchema(*database, SchemaVersions().size(), now_).ok());
  ASSERT_TRUE(database->Execute("INSERT INTO migrations (version, applied_unix_micros) VALUES (1000, 0)", {}).ok());
  const absl::Status refused = MigrateSchema(*database, SchemaVersions().size(), now_);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("schema version 1000, this server knows"));
  EXPECT_EQ(SchemaVersion(*database).value(), 1000);
}

TEST_P(SchemaSuite, MigratingTwiceChangesNothing) {
  const std::string place = NewPlace();
  auto database = GetParam()(place);
  ASSERT_TRUE(MigrateSchema(*database, SchemaVersions().size(), now_).ok());
  FillVersion1(*database);
  ASSERT_TRUE(MigrateSchema(*database, SchemaVersions().size(), now_).ok());
  EXPECT_EQ(database->Execute("SELECT name FROM jobs", {}).value().rows.size(), 1);
  EXPECT_EQ(database->Execute("SELECT version FROM migrations", {}).value().rows.size(), SchemaVersions().size());
}

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_SCHEMA_SUITE_H_
