// A connection to PostgreSQL, which comes back by itself after the database was away.
#ifndef TIDETAPE_SERVER_STORE_POSTGRES_DATABASE_H_
#define TIDETAPE_SERVER_STORE_POSTGRES_DATABASE_H_

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/sql_database.h"

struct pg_conn;

namespace tidetape::server {

// Connects with the first statement, and again with the next one after the connection was lost; inside a transaction a lost
// connection is an error. Every wait for the database is bounded by seconds.
class PostgresDatabase final : public SqlDatabase {
 public:
  // A connection string or URL as libpq takes it; what it does not say comes from PG* variables and the password file. Only
  // InvalidArgument where it cannot be read: being away is the statements' error.
  static absl::StatusOr<std::unique_ptr<PostgresDatabase>> Make(const std::string& connection);
  ~PostgresDatabase() override;

  absl::StatusOr<SqlResult> Execute(const std::string& sql, const std::vector<SqlValue>& parameters) override;
  absl::Status Begin() override;
  absl::Status Commit() override;
  void Rollback() override;
  absl::Status LockSchema() override;
  std::string BytesType() const override { return "BYTEA"; }

  // Where it connects to, for people: host, port and database, without user and password.
  const std::string& place() const { return place_; }

 private:
  PostgresDatabase(std::string connection, std::string place) : connection_(std::move(connection)), place_(std::move(place)) {}

  absl::Status Connect();
  void Disconnect();
  bool connected() const;
  absl::StatusOr<SqlResult> ExecuteOnce(const std::string& sql, const std::vector<SqlValue>& parameters);
  // What the connection says of its last failure; ends a connection that broke.
  absl::Status Error(const std::string& sql_state);

  const std::string connection_;
  const std::string place_;
  pg_conn* database_ = nullptr;
  std::set<std::string> prepared_;  // in this connection
  bool in_transaction_ = false;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_POSTGRES_DATABASE_H_
