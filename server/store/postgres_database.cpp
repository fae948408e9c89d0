#include "server/store/postgres_database.h"

#include <endian.h>
#include <postgresql/libpq-fe.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tidetape::server {
namespace {

// Types as pg_type.dat numbers them.
constexpr Oid kInt8 = 20, kText = 25, kBytea = 17;
constexpr int kBinary = 1;

// Any number that other programs in the database do not use for an advisory lock: "tidetape" in ASCII, cut to fit.
constexpr char kSchemaLock[] = "SELECT pg_advisory_xact_lock(8388065906484145520)";

// What the connection string does not say. A database that is silent for seconds is away.
constexpr const char* kDefaults[][2] = {
    {"connect_timeout", "2"},  {"keepalives_idle", "2"},     {"keepalives_interval", "1"},
    {"keepalives_count", "3"}, {"tcp_user_timeout", "5000"}, {"application_name", "tidetape-server"},
};

constexpr char kSession[] =
    "SET synchronous_commit = on; SET statement_timeout = '10s'; SET lock_timeout = '5s'; "
    "SET idle_in_transaction_session_timeout = '10s'; SET client_min_messages = warning";

Oid TypeOf(const SqlValue& value) {
  switch (value.type) {
    case SqlValue::Type::kInteger:
      return kInt8;
    case SqlValue::Type::kText:
      return kText;
    case SqlValue::Type::kBytes:
      return kBytea;
  }
  return 0;
}

SqlValue Field(const PGresult* result, int row, int column) {
  const bool null = PQgetisnull(result, row, column) != 0;
  const char* data = PQgetvalue(result, row, column);
  const auto size = static_cast<size_t>(PQgetlength(result, row, column));
  switch (PQftype(result, column)) {
    case kInt8: {
      if (null) return SqlValue::Null(SqlValue::Type::kInteger);
      uint64_t big_endian = 0;
      std::memcpy(&big_endian, data, sizeof(big_endian));
      return SqlValue::Integer(static_cast<int64_t>(be64toh(big_endian)));
    }
    case kText:
      return null ? SqlValue::Null(SqlValue::Type::kText) : SqlValue::Text(std::string(data, size));
    default:
      return null ? SqlValue::Null(SqlValue::Type::kBytes) : SqlValue::Bytes(std::string(data, size));
  }
}

struct ResultDeleter {
  void operator()(PGresult* result) const { PQclear(result); }
};
using Result = std::unique_ptr<PGresult, ResultDeleter>;

std::string StateOf(const PGresult* result) {
  const char* state = result == nullptr ? nullptr : PQresultErrorField(result, PG_DIAG_SQLSTATE);
  return state == nullptr ? "" : state;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PostgresDatabase>> PostgresDatabase::Make(const std::string& connection) {
  char* complaint = nullptr;
  PQconninfoOption* options = PQconninfoParse(connection.c_str(), &complaint);
  if (options == nullptr) {
    // libpq's complaint may repeat the string, and with it a password.
    PQfreemem(complaint);
    return absl::InvalidArgumentError("the PostgreSQL connection string cannot be read; use postgresql://USER@HOST:PORT/DATABASE");
  }
  std::string host, port, database;
  for (const PQconninfoOption* option = options; option->keyword != nullptr; ++option) {
    const std::string value = option->val == nullptr ? "" : option->val;
    if (std::strcmp(option->keyword, "host") == 0) host = value;
    if (std::strcmp(option->keyword, "port") == 0) port = value;
    if (std::strcmp(option->keyword, "dbname") == 0) database = value;
  }
  PQconninfoFree(options);
  const std::string place =
      absl::StrCat("PostgreSQL", database.empty() ? "" : absl::StrCat(" database ", database),
                   host.empty() ? "" : absl::StrCat(" at ", host), port.empty() ? "" : absl::StrCat(":", port));
  return std::unique_ptr<PostgresDatabase>(new PostgresDatabase(connection, place));
}

PostgresDatabase::~PostgresDatabase() { Disconnect(); }

void PostgresDatabase::Disconnect() {
  PQfinish(database_);
  database_ = nullptr;
  prepared_.clear();
}

bool PostgresDatabase::connected() const { return database_ != nullptr && PQstatus(database_) == CONNECTION_OK; }

absl::Status PostgresDatabase::Connect() {
  if (connected()) return absl::OkStatus();
  Disconnect();
  // Later entries win, and dbname is expanded where it stands: so the defaults come first.
  std::vector<const char*> names, values;
  for (const auto& [name, value] : kDefaults) {
    names.push_back(name);
    values.push_back(value);
  }
  names.push_back("dbname");
  values.push_back(connection_.c_str());
  names.push_back(nullptr);
  values.push_back(nullptr);
  database_ = PQconnectdbParams(names.data(), values.data(), /*expand_dbname=*/1);
  if (!connected()) {
    return Error("");
  }
  // Whatever matters comes as an error, too.
  PQsetNoticeProcessor(
      database_, [](void*, const char*) {}, nullptr);
  const Result set(PQexec(database_, kSession));
  if (PQresultStatus(set.get()) == PGRES_COMMAND_OK) return absl::OkStatus();
  absl::Status status = Error(StateOf(set.get()));
  Disconnect();
  return status;
}

absl::Status PostgresDatabase::Error(const std::string& sql_state) {
  const char* said = PQerrorMessage(database_);
  const std::string message = absl::StrCat(place_, ": ", absl::StripAsciiWhitespace(said));
  // Classes of SQLSTATE: connection, resources (a full disk), operator intervention, and transactions that may be repeated.
  for (const char* passing : {"08", "53", "57", "40", "55P03", "25P03"}) {
    if (absl::StartsWith(sql_state, passing)) return absl::UnavailableError(message);
  }
  if (sql_state.empty()) {
    // libpq itself has no codes: the connection broke.
    Disconnect();
    return absl::UnavailableError(message);
  }
  if (absl::StartsWith(sql_state, "XX")) return absl::DataLossError(message);
  return absl::InternalError(message);
}

absl::StatusOr<SqlResult> PostgresDatabase::Execute(const std::string& sql, const std::vector<SqlValue>& parameters) {
  const bool was_connected = connected();
  if (!was_connected && in_transaction_) return absl::UnavailableError(absl::StrCat(place_, ": the connection was lost"));
  if (absl::Status status = Connect(); !status.ok()) return status;
  auto result = ExecuteOnce(sql, parameters);
  // An idle connection that the database closed shows only now. A statement outside of transactions only reads, or is repeatable.
  if (!result.ok() && was_connected && !in_transaction_ && !connected()) {
    if (absl::Status status = Connect(); !status.ok()) return status;
    result = ExecuteOnce(sql, parameters);
  }
  return result;
}

absl::StatusOr<SqlResult> PostgresDatabase::ExecuteOnce(const std::string& sql, const std::vector<SqlValue>& parameters) {
  const auto count = static_cast<int>(parameters.size());
  std::vector<Oid> types;
  std::vector<uint64_t> integers(parameters.size());
  std::vector<const char*> values;
  std::vector<int> lengths, formats(parameters.size(), kBinary);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const SqlValue& value = parameters[i];
    types.push_back(TypeOf(value));
    integers[i] = htobe64(static_cast<uint64_t>(value.integer));
    const bool integer = value.type == SqlValue::Type::kInteger;
    const char* data = integer ? reinterpret_cast<const char*>(&integers[i]) : value.data.data();
    values.push_back(value.null ? nullptr : data);
    lengths.push_back(static_cast<int>(integer ? sizeof(uint64_t) : value.data.size()));
  }
  const std::string name = absl::StrCat("s", absl::Hex(absl::HashOf(sql)));
  if (prepared_.count(name) == 0) {
    const Result prepared(PQprepare(database_, name.c_str(), sql.c_str(), count, types.data()));
    if (PQresultStatus(prepared.get()) != PGRES_COMMAND_OK) return Error(StateOf(prepared.get()));
    prepared_.insert(name);
  }
  const Result answer(PQexecPrepared(database_, name.c_str(), count, values.data(), lengths.data(), formats.data(), kBinary));
  const ExecStatusType status = PQresultStatus(answer.get());
  if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) return Error(StateOf(answer.get()));
  SqlResult result;
  for (int row = 0; row < PQntuples(answer.get()); ++row) {
    auto& fields = result.rows.emplace_back();
    for (int column = 0; column < PQnfields(answer.get()); ++column) fields.push_back(Field(answer.get(), row, column));
  }
  result.changed_rows = std::strtoll(PQcmdTuples(answer.get()), nullptr, 10);
  return result;
}

absl::Status PostgresDatabase::Begin() {
  absl::Status status = Execute("BEGIN", {}).status();
  in_transaction_ = status.ok();
  return status;
}

absl::Status PostgresDatabase::Commit() {
  const auto result = Execute("COMMIT", {});
  // A transaction in which a statement failed answers COMMIT with a rollback and no error; but then the failure was told before.
  in_transaction_ = false;
  return result.status();
}

void PostgresDatabase::Rollback() {
  in_transaction_ = false;
  if (connected() && PQtransactionStatus(database_) != PQTRANS_IDLE) Execute("ROLLBACK", {}).IgnoreError();
}

absl::Status PostgresDatabase::LockSchema() { return Execute(kSchemaLock, {}).status(); }

}  // namespace tidetape::server
