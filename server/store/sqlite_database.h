// A connection to an SQLite file.
#ifndef TIDETAPE_SERVER_STORE_SQLITE_DATABASE_H_
#define TIDETAPE_SERVER_STORE_SQLITE_DATABASE_H_

#include <sqlite3.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/local_file.h"
#include "server/store/sql_database.h"

namespace tidetape::server {

class SqliteDatabase final : public SqlDatabase {
 public:
  // Opens the file, made where it is not there, with a write-ahead log that is synchronised at every commit. `lock` may be null; it
  // is held as long as the connection.
  static absl::StatusOr<std::unique_ptr<SqliteDatabase>> Open(const std::string& path, std::unique_ptr<FileLock> lock);
  ~SqliteDatabase() override;

  absl::StatusOr<SqlResult> Execute(const std::string& sql, const std::vector<SqlValue>& parameters) override;
  absl::Status Begin() override;
  absl::Status Commit() override;
  void Rollback() override;
  // Nothing to do: a transaction that writes locks the file.
  absl::Status LockSchema() override { return absl::OkStatus(); }
  std::string BytesType() const override { return "BLOB"; }

 private:
  SqliteDatabase(std::string path, sqlite3* database, std::unique_ptr<FileLock> lock)
      : lock_(std::move(lock)), path_(std::move(path)), database_(database) {}

  absl::StatusOr<sqlite3_stmt*> Prepare(const std::string& sql);
  absl::Status Run(const std::string& sql);
  absl::Status Error(int code) const;

  const std::unique_ptr<FileLock> lock_;
  const std::string path_;
  sqlite3* const database_;
  std::map<std::string, sqlite3_stmt*> statements_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_SQLITE_DATABASE_H_
