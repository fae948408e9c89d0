#include "server/store/postgres_store.h"

#include <utility>
#include <vector>

#include "server/store/postgres_database.h"
#include "server/store/sql_schema.h"
#include "server/store/sql_store.h"

namespace tidetape::server {

absl::StatusOr<std::unique_ptr<PostgresStore>> PostgresStore::Make(const std::string& connection, absl::Duration lease_duration,
                                                                   StoreObserver* observer) {
  std::vector<std::unique_ptr<PostgresDatabase>> databases;
  for (int i = 0; i < 3; ++i) {
    auto database = PostgresDatabase::Make(connection);
    if (!database.ok()) return database.status();
    databases.push_back(*std::move(database));
  }
  std::unique_ptr<PostgresStore> store(new PostgresStore());
  store->connection_ = connection;
  store->place_ = databases[0]->place();
  store->lease_ = std::make_unique<LeaderLease>(std::move(databases[0]), lease_duration);
  CommitQueue::Options queue;
  queue.observer = observer;
  queue.guard = [term = store->term_](SqlDatabase& database) { return LeaderLease::Guard(database, *term); };
  store->store_ = std::make_unique<SqlStore>(std::move(databases[1]), std::move(databases[2]), std::move(queue));
  return store;
}

absl::Status PostgresStore::Lead(int64_t term, Clock* clock) {
  auto database = PostgresDatabase::Make(connection_);
  if (!database.ok()) return database.status();
  if (absl::Status status = MigrateSchema(**database, SchemaVersions().size(), clock->Now()); !status.ok()) return status;
  *term_ = term;
  return absl::OkStatus();
}

}  // namespace tidetape::server
