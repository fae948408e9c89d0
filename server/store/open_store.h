// The store that a server's --store names.
#ifndef TIDETAPE_SERVER_STORE_OPEN_STORE_H_
#define TIDETAPE_SERVER_STORE_OPEN_STORE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/common/clock.h"
#include "server/store/store.h"
#include "server/store/store_observer.h"

namespace tidetape::server {

// Where an SQLite store lies that nobody has named: in STATE_DIRECTORY as systemd sets it, else in $XDG_STATE_HOME/tidetape, else
// in
// ~/.local/state/tidetape.
absl::StatusOr<std::string> DefaultStorePath();

// Whether --store names a PostgreSQL database: as a URL, or as libpq's "host=… dbname=…". See postgres_store.h for it.
bool IsPostgres(const std::string& name);

// "memory"; "sqlite" in DefaultStorePath(); "sqlite:PATH". InvalidArgument for anything else. `observer` hears of
// transactions, which a memory store has none of, and outlives the store; null: nobody.
absl::StatusOr<std::unique_ptr<Store>> OpenStore(const std::string& name, Clock* clock, StoreObserver* observer = nullptr);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_OPEN_STORE_H_
