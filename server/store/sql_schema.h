// The tables of an SQL store, and how older ones become today's.
//
// Each version is a list of statements that are applied once, in one transaction; the table `migrations` tells which ones were. A
// version that was released is never changed: a change is a new version.
#ifndef TIDETAPE_SERVER_STORE_SQL_SCHEMA_H_
#define TIDETAPE_SERVER_STORE_SQL_SCHEMA_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/store/sql_database.h"

namespace tidetape::server {

// The statements of each version, the first one's first. BYTES stands for the database's own type for bytes.
const std::vector<std::vector<std::string>>& SchemaVersions();

// Brings the database to version `target`, at most SchemaVersions().size(). FailedPrecondition, without a change, where it is newer
// than that: another version of the server has used it.
absl::Status MigrateSchema(SqlDatabase& database, size_t target, absl::Time now);

// The version that the database has; 0 where it is empty.
absl::StatusOr<int64_t> SchemaVersion(SqlDatabase& database);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_SQL_SCHEMA_H_
