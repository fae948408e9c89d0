// The store of one machine: an SQLite file with a write-ahead log and full synchronisation.
#ifndef TIDETAPE_SERVER_STORE_SQLITE_STORE_H_
#define TIDETAPE_SERVER_STORE_SQLITE_STORE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/common/clock.h"
#include "server/store/local_file.h"
#include "server/store/store.h"
#include "server/store/store_observer.h"

namespace tidetape::server {

// Opens the store in `path`, made with its folder where it is not there; beside it lie `path`-wal, `path`-shm and `path`.lock. An
// older schema is brought to today's. FailedPrecondition where another server holds it, where a newer server made it, or where it
// lies on a network file system; DataLoss where it is damaged. `observer` outlives the store; null: nobody.
absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path, Clock* clock, StoreObserver* observer = nullptr,
                                                       const FileSystemType& type_of = FileSystemTypeOf);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_SQLITE_STORE_H_
