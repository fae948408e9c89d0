#include "server/store/sqlite_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/store/sql_schema.h"
#include "server/store/sql_store.h"
#include "server/store/sqlite_database.h"

namespace tidetape::server {

absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path, Clock* clock, StoreObserver* observer,
                                                       const FileSystemType& type_of) {
  if (absl::Status status = PrepareFolder(path, type_of); !status.ok()) return status;
  auto lock = FileLock::Take(path + ".lock");
  if (!lock.ok()) return lock.status();
  auto writer = SqliteDatabase::Open(path, *std::move(lock));
  if (!writer.ok()) return writer.status();
  if (absl::Status status = MigrateSchema(**writer, SchemaVersions().size(), clock->Now()); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
  }
  auto reader = SqliteDatabase::Open(path, nullptr);
  if (!reader.ok()) return reader.status();
  CommitQueue::Options queue;
  queue.observer = observer;
  return std::make_unique<SqlStore>(*std::move(writer), *std::move(reader), std::move(queue));
}

}  // namespace tidetape::server
