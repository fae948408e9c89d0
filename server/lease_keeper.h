// Takes the leader's lease when it is free, and keeps it.
#ifndef TIDETAPE_SERVER_LEASE_KEEPER_H_
#define TIDETAPE_SERVER_LEASE_KEEPER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/store/leader_lease.h"

namespace tidetape::server {

// A thread that looks at the lease several times within its duration. What it finds, it tells:
//   stand_by(address)   another server leads, at this address; told again and again
//   lead(term)          this one does; takes its time on a thread of its own while the lease is kept, and is called again while it
//                       answers UNAVAILABLE, as a database does that is away
//   lost(status)        lead failed, or another server has taken the lease: this process should end. Nothing is told after it; a
//                       lead that is tried again may still be called
class LeaseKeeper {
 public:
  struct Options {
    // Where this server is reached.
    std::string address;
    // Between two looks; a fifth of the lease's duration or less.
    absl::Duration interval = absl::Milliseconds(250);
    std::function<void(const std::string& leader_address)> stand_by;
    std::function<absl::Status(int64_t term)> lead;
    std::function<void(const absl::Status& status)> lost;
  };

  // `lease` outlives the keeper, which alone uses it.
  LeaseKeeper(LeaderLease* lease, Options options);

  // Gives the lease back.
  ~LeaseKeeper();
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;

 private:
  void Run();
  // False where there is nothing more to do.
  bool Look();
  bool TakeOrStandBy();
  void TakeUpTheLead(int64_t term);
  bool StopsWithinTheInterval();
  void Complain(const absl::Status& status);

  LeaderLease* const lease_;
  const Options options_;
  int64_t term_ = 0;  // 0: another server leads
  std::string complaint_;
  std::thread leading_;

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status lead_status_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_LEASE_KEEPER_H_
