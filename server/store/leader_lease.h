// Which of several servers on one PostgreSQL database leads.
//
// One row holds the leader's term, its address and until when the lease runs, by the database's own clock. A server takes the lease
// when it has run out, with the next term, and keeps it by renewing it. Every transaction of a store looks at the row first and
// locks it (Guard), so that a server that lost the lease, however late it notices, writes nothing any more.
#ifndef TIDETAPE_SERVER_STORE_LEADER_LEASE_H_
#define TIDETAPE_SERVER_STORE_LEADER_LEASE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/store/sql_database.h"

namespace tidetape::server {

// Not thread-safe.
class LeaderLease {
 public:
  // `database` is a connection of the lease's own. The lease runs for `duration` without being renewed: that long a server that
  // died is waited for.
  LeaderLease(std::unique_ptr<SqlDatabase> database, absl::Duration duration)
      : database_(std::move(database)), duration_(duration) {}

  // The term, if the lease was free, or of an earlier process at the same address, and is now this server's; nothing where another
  // one leads. `address` is where agents and people
  // reach this server, host:port; told to those who ask another one.
  absl::StatusOr<std::optional<int64_t>> TryTake(const std::string& address);

  // FailedPrecondition where another server has taken the lease since. OK also after it ran out, if nobody took it.
  absl::Status Renew(int64_t term);

  // Lets the next server in at once.
  absl::Status Release(int64_t term);

  // Address of the server that leads or led last; empty where none ever did.
  absl::StatusOr<std::string> LeaderAddress();

  // Inside a transaction: UNAVAILABLE unless the term is the newest. Until the transaction's end no other server can take the
  // lease.
  static absl::Status Guard(SqlDatabase& database, int64_t term);

 private:
  absl::Status MakeTable();

  const std::unique_ptr<SqlDatabase> database_;
  const absl::Duration duration_;
  bool made_ = false;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_LEADER_LEASE_H_
