#include "server/store/sql_schema.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace tidetape::server {
namespace {

absl::Status Migrate(SqlDatabase& database, size_t target, absl::Time now) {
  if (absl::Status status = database.LockSchema(); !status.ok()) return status;
  const auto created = database.Execute(
      "CREATE TABLE IF NOT EXISTS migrations (version BIGINT PRIMARY KEY, applied_unix_micros BIGINT NOT NULL)", {});
  if (!created.ok()) return created.status();
  const absl::StatusOr<int64_t> version = SchemaVersion(database);
  if (!version.ok()) return version.status();
  if (*version > static_cast<int64_t>(target)) {
    return absl::FailedPreconditionError(absl::StrCat("the database has schema version ", *version, ", this server knows ", target,
                                                      " and older; use the newer server, or restore a backup made before it"));
  }
  for (size_t next = static_cast<size_t>(*version); next < target; ++next) {
    for (const std::string& statement : SchemaVersions()[next]) {
      const auto applied = database.Execute(absl::StrReplaceAll(statement, {{"BYTES", database.BytesType()}}), {});
      if (!applied.ok()) return applied.status();
    }
    const auto noted =
        database.Execute("INSERT INTO migrations (version, applied_unix_micros) VALUES ($1, $2)",
                         {SqlValue::Integer(static_cast<int64_t>(next) + 1), SqlValue::Integer(absl::ToUnixMicros(now))});
    if (!noted.ok()) return noted.status();
  }
  return absl::OkStatus();
}

}  // namespace

const std::vector<std::vector<std::string>>& SchemaVersions() {
  static const auto* versions = new std::vector<std::vector<std::string>>{
      // 1: jobs, their starts, tapes and plans. The current incarnation and the highest committed generation are the job's own.
      {
          "CREATE TABLE jobs (name TEXT PRIMARY KEY, incarnation TEXT NOT NULL DEFAULT '', "
          "generation BIGINT NOT NULL DEFAULT 0, constraints BYTES)",
          "CREATE TABLE incarnations (job TEXT NOT NULL, position BIGINT NOT NULL, id TEXT NOT NULL, birth BIGINT NOT NULL, "
          "world_size BIGINT NOT NULL, first_seen_unix_micros BIGINT NOT NULL, device BYTES NOT NULL, "
          "torch_version BYTES NOT NULL, PRIMARY KEY (job, id))",
          "CREATE TABLE tapes (job TEXT NOT NULL, structure_hash BIGINT NOT NULL, tape BYTES NOT NULL, "
          "PRIMARY KEY (job, structure_hash))",
          "CREATE TABLE plans (job TEXT NOT NULL, generation BIGINT NOT NULL, plan BYTES NOT NULL, "
          "PRIMARY KEY (job, generation))",
      },
      // 2: ranks as their newest reports left them, costs, a row to try writing with, and how often tapes and constraints changed.
      {
          "CREATE TABLE ranks (job TEXT NOT NULL, rank BIGINT NOT NULL, hello BYTES, report BYTES, profile BYTES, "
          "reports BIGINT NOT NULL, held_generation BIGINT NOT NULL, active_generation BIGINT NOT NULL, "
          "plan_error BYTES NOT NULL, heard_unix_micros BIGINT NOT NULL, PRIMARY KEY (job, rank))",
          "CREATE TABLE costs (job TEXT NOT NULL, rank BIGINT NOT NULL, structure_hash BIGINT NOT NULL, costs BYTES NOT NULL, "
          "PRIMARY KEY (job, rank, structure_hash))",
          "CREATE TABLE checks (id BIGINT PRIMARY KEY, writes BIGINT NOT NULL)",
          "ALTER TABLE jobs ADD COLUMN revision BIGINT NOT NULL DEFAULT 0",
      },
      // 3: jobs end.
      {
          "ALTER TABLE jobs ADD COLUMN ended_unix_micros BIGINT",
          "ALTER TABLE jobs ADD COLUMN end_reason BYTES",
          "ALTER TABLE jobs ADD COLUMN end_refuses BIGINT NOT NULL DEFAULT 0",
      },
      // 4: runs that outlive their jobs.
      {
          "CREATE TABLE known_runs (structure BIGINT NOT NULL, shapes BIGINT NOT NULL, run BYTES NOT NULL, bytes BIGINT NOT NULL, "
          "used_unix_micros BIGINT NOT NULL, PRIMARY KEY (structure, shapes))",
      },
  };
  return *versions;
}

absl::Status MigrateSchema(SqlDatabase& database, size_t target, absl::Time now) {
  if (absl::Status status = database.Begin(); !status.ok()) return status;
  absl::Status status = Migrate(database, target, now);
  if (status.ok()) status = database.Commit();
  if (!status.ok()) database.Rollback();
  return status;
}

absl::StatusOr<int64_t> SchemaVersion(SqlDatabase& database) {
  const auto result = database.Execute("SELECT COALESCE(MAX(version), 0) FROM migrations", {});
  if (!result.ok()) return result.status();
  return result->rows[0][0].integer;
}

}  // namespace tidetape::server
