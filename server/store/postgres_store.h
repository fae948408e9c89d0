// The store of several machines: a PostgreSQL database that one server at a time may write to.
#ifndef TIDETAPE_SERVER_STORE_POSTGRES_STORE_H_
#define TIDETAPE_SERVER_STORE_POSTGRES_STORE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/common/clock.h"
#include "server/store/leader_lease.h"
#include "server/store/store.h"
#include "server/store/store_observer.h"

namespace tidetape::server {

// A store together with the lease that lets this server write to it. Until Lead() every write answers UNAVAILABLE, and again once
// another server has taken the lease.
class PostgresStore {
 public:
  // `connection` as libpq takes it. Connects to nothing yet. See LeaderLease for the duration. `observer` outlives the store; null:
  // nobody.
  static absl::StatusOr<std::unique_ptr<PostgresStore>> Make(const std::string& connection, absl::Duration lease_duration,
                                                             StoreObserver* observer = nullptr);

  Store& store() { return *store_; }
  LeaderLease& lease() { return *lease_; }

  // Writes under this term of the lease from now on, after bringing the schema to today's version. FailedPrecondition where a newer
  // server has used the database.
  absl::Status Lead(int64_t term, Clock* clock);

  // Where the database is, for people.
  const std::string& place() const { return place_; }

 private:
  PostgresStore() = default;

  std::string connection_;
  std::string place_;
  std::unique_ptr<LeaderLease> lease_;
  std::shared_ptr<std::atomic<int64_t>> term_ = std::make_shared<std::atomic<int64_t>>(0);
  std::unique_ptr<Store> store_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_POSTGRES_STORE_H_
