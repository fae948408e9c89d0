#include "server/store/sqlite_database.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace tidetape::server {
namespace {

// Only a checkpoint or a backup by another program can be in the way, and those are short.
constexpr int kBusyTimeoutMillis = 5000;

int Bind(sqlite3_stmt* statement, int index, const SqlValue& value) {
  if (value.null) return sqlite3_bind_null(statement, index);
  const auto size = static_cast<sqlite3_uint64>(value.data.size());
  switch (value.type) {
    case SqlValue::Type::kInteger:
      return sqlite3_bind_int64(statement, index, value.integer);
    case SqlValue::Type::kText:
      return sqlite3_bind_text64(statement, index, value.data.data(), size, SQLITE_STATIC, SQLITE_UTF8);
    case SqlValue::Type::kBytes:
      // A null pointer would make it null instead of empty.
      return sqlite3_bind_blob64(statement, index, value.data.empty() ? "" : value.data.data(), size, SQLITE_STATIC);
  }
  return SQLITE_MISUSE;
}

SqlValue Column(sqlite3_stmt* statement, int column) {
  const auto data = [&] {
    const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement, column));
    return bytes == nullptr ? std::string() : std::string(bytes, static_cast<size_t>(sqlite3_column_bytes(statement, column)));
  };
  switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
      return SqlValue::Integer(sqlite3_column_int64(statement, column));
    case SQLITE_TEXT:
      return SqlValue::Text(data());
    case SQLITE_BLOB:
      return SqlValue::Bytes(data());
    default:
      return SqlValue::Null(SqlValue::Type::kBytes);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteDatabase>> SqliteDatabase::Open(const std::string& path, std::unique_ptr<FileLock> lock) {
  sqlite3* handle = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  // Owns the handle from here on, also after a failure.
  std::unique_ptr<SqliteDatabase> database(new SqliteDatabase(path, handle, std::move(lock)));
  if (code != SQLITE_OK) return database->Error(code);
  sqlite3_busy_timeout(handle, kBusyTimeoutMillis);
  sqlite3_extended_result_codes(handle, 1);
  for (const char* setting : {"PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL"}) {
    if (absl::Status status = database->Run(setting); !status.ok()) return status;
  }
  return database;
}

SqliteDatabase::~SqliteDatabase() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(database_);
}

absl::Status SqliteDatabase::Error(int code) const {
  const std::string said = absl::StrCat(path_, ": ", database_ == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(database_));
  switch (code & 0xFF) {
    case SQLITE_FULL:
      return absl::UnavailableError(absl::StrCat(said, "; free space there, the server goes on by itself"));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(absl::StrCat(said, "; another program holds the file"));
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR:
    case SQLITE_PERM:
    case SQLITE_READONLY:
      return absl::UnavailableError(absl::StrCat(said, "; is the disk there, and may this user write to it?"));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(absl::StrCat(said, "; restore a backup, or move the file away and start with an empty one"));
    case SQLITE_TOOBIG:
      return absl::InvalidArgumentError(said);
    default:
      return absl::InternalError(said);
  }
}

absl::StatusOr<sqlite3_stmt*> SqliteDatabase::Prepare(const std::string& sql) {
  if (const auto known = statements_.find(sql); known != statements_.end()) return known->second;
  // SQLite's own way to number parameters; no statement has a dollar elsewhere.
  const std::string numbered = absl::StrReplaceAll(sql, {{"$", "?"}});
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(database_, numbered.c_str(), -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (code != SQLITE_OK) return Error(code);
  statements_[sql] = statement;
  return statement;
}

absl::StatusOr<SqlResult> SqliteDatabase::Execute(const std::string& sql, const std::vector<SqlValue>& parameters) {
  const auto prepared = Prepare(sql);
  if (!prepared.ok()) return prepared.status();
  sqlite3_stmt* statement = *prepared;
  int code = SQLITE_OK;
  for (size_t i = 0; i < parameters.size() && code == SQLITE_OK; ++i)
    code = Bind(statement, static_cast<int>(i) + 1, parameters[i]);
  SqlResult result;
  if (code == SQLITE_OK) {
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
      auto& row = result.rows.emplace_back();
      for (int column = 0; column < sqlite3_column_count(statement); ++column) row.push_back(Column(statement, column));
    }
  }
  const absl::Status status = code == SQLITE_DONE ? absl::OkStatus() : Error(code);
  sqlite3_reset(statement);
  sqlite3_clear_bindings(statement);
  if (!status.ok()) return status;
  result.changed_rows = sqlite3_changes64(database_);
  return result;
}

absl::Status SqliteDatabase::Run(const std::string& sql) { return Execute(sql, {}).status(); }

absl::Status SqliteDatabase::Begin() { return Run("BEGIN IMMEDIATE"); }

absl::Status SqliteDatabase::Commit() { return Run("COMMIT"); }

void SqliteDatabase::Rollback() {
  // Some errors have rolled back already.
  if (sqlite3_get_autocommit(database_) == 0) Run("ROLLBACK").IgnoreError();
}

}  // namespace tidetape::server
