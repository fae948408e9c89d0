#include "server/store/leader_lease.h"

#include "absl/strings/str_cat.h"

namespace tidetape::server {
namespace {

// Microseconds since the Unix epoch. Servers' own clocks may differ.
constexpr char kNow[] = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)";

}  // namespace

absl::Status LeaderLease::MakeTable() {
  if (made_) return absl::OkStatus();
  absl::Status status = database_->Begin();
  if (status.ok()) status = database_->LockSchema();
  for (const char* statement :
       {"CREATE TABLE IF NOT EXISTS leader (id BIGINT PRIMARY KEY, term BIGINT NOT NULL, address TEXT NOT NULL, "
        "until_unix_micros BIGINT NOT NULL)",
        "INSERT INTO leader (id, term, address, until_unix_micros) VALUES (1, 0, '', 0) ON CONFLICT (id) DO NOTHING"}) {
    if (status.ok()) status = database_->Execute(statement, {}).status();
  }
  if (status.ok()) status = database_->Commit();
  if (!status.ok()) database_->Rollback();
  made_ = status.ok();
  return status;
}

absl::StatusOr<std::optional<int64_t>> LeaderLease::TryTake(const std::string& address) {
  if (absl::Status status = MakeTable(); !status.ok()) return status;
  const auto result =
      database_->Execute(absl::StrCat("UPDATE leader SET term = term + 1, address = $1, until_unix_micros = ", kNow,
                                      " + $2 WHERE id = 1 AND (until_unix_micros < ", kNow, " OR address = $1) RETURNING term"),
                         {SqlValue::Text(address), SqlValue::Integer(absl::ToInt64Microseconds(duration_))});
  if (!result.ok()) return result.status();
  if (result->rows.empty()) return std::optional<int64_t>();
  return std::optional<int64_t>(result->rows[0][0].integer);
}

absl::Status LeaderLease::Renew(int64_t term) {
  const auto result =
      database_->Execute(absl::StrCat("UPDATE leader SET until_unix_micros = ", kNow, " + $2 WHERE id = 1 AND term = $1"),
                         {SqlValue::Integer(term), SqlValue::Integer(absl::ToInt64Microseconds(duration_))});
  if (!result.ok()) return result.status();
  if (result->changed_rows == 1) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("term ", term, " is over: another server has taken the lease"));
}

absl::Status LeaderLease::Release(int64_t term) {
  return database_->Execute("UPDATE leader SET until_unix_micros = 0 WHERE id = 1 AND term = $1", {SqlValue::Integer(term)})
      .status();
}

absl::StatusOr<std::string> LeaderLease::LeaderAddress() {
  if (absl::Status status = MakeTable(); !status.ok()) return status;
  const auto result = database_->Execute("SELECT address FROM leader WHERE id = 1", {});
  if (!result.ok()) return result.status();
  return result->rows.empty() ? "" : result->rows[0][0].data;
}

// Terms begin with 1.
absl::Status LeaderLease::Guard(SqlDatabase& database, int64_t term) {
  if (term == 0) return absl::UnavailableError("this server does not lead");
  const auto result = database.Execute("SELECT term FROM leader WHERE id = 1 AND term = $1 FOR SHARE", {SqlValue::Integer(term)});
  if (!result.ok()) return result.status();
  if (!result->rows.empty()) return absl::OkStatus();
  return absl::UnavailableError("this server does not lead any more; another one does");
}

}  // namespace tidetape::server
