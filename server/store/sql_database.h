// One connection to an SQL database, as far as the store needs it: the few things in which SQLite and PostgreSQL differ.
#ifndef TIDETAPE_SERVER_STORE_SQL_DATABASE_H_
#define TIDETAPE_SERVER_STORE_SQL_DATABASE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tidetape::server {

// A parameter or a field of a row. Typed also where it is null, because PostgreSQL asks for the type of each parameter.
struct SqlValue {
  enum class Type { kInteger, kText, kBytes };

  static SqlValue Integer(int64_t value) { return {Type::kInteger, false, value, ""}; }
  // Valid UTF-8 without NUL.
  static SqlValue Text(std::string value) { return {Type::kText, false, 0, std::move(value)}; }
  static SqlValue Bytes(std::string value) { return {Type::kBytes, false, 0, std::move(value)}; }
  static SqlValue Null(Type type) { return {type, true, 0, ""}; }

  Type type = Type::kInteger;
  bool null = true;
  int64_t integer = 0;
  std::string data;  // of texts and bytes
};

struct SqlResult {
  std::vector<std::vector<SqlValue>> rows;
  int64_t changed_rows = 0;
};

// Not thread-safe. Errors: UNAVAILABLE where the database cannot be reached or cannot write at present, DATA_LOSS where it is
// damaged, INTERNAL for the rest; a message says what the database said. After an error inside a transaction only Rollback helps.
class SqlDatabase {
 public:
  virtual ~SqlDatabase() = default;

  // Runs one statement, whose parameters are $1, $2, … Statements are prepared once and kept, so use few different ones.
  virtual absl::StatusOr<SqlResult> Execute(const std::string& sql, const std::vector<SqlValue>& parameters) = 0;

  // Begins a transaction that writes.
  virtual absl::Status Begin() = 0;
  // OK once the transaction is on stable storage. Where the answer is lost, an error, and the transaction may have happened.
  virtual absl::Status Commit() = 0;
  virtual void Rollback() = 0;

  // Inside a transaction: until its end no other process changes the schema.
  virtual absl::Status LockSchema() = 0;

  // What the column type for bytes is called.
  virtual std::string BytesType() const = 0;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_SQL_DATABASE_H_
