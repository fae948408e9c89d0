// Whether this server answers, or stands by while another one does.
#ifndef TIDETAPE_SERVER_SERVICE_SERVING_GATE_H_
#define TIDETAPE_SERVER_SERVICE_SERVING_GATE_H_

#include <grpcpp/support/status.h>

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "net/leader_detail.h"

namespace tidetape::server {

// Closed at first. Thread-safe.
class ServingGate {
 public:
  void Open() {
    absl::MutexLock lock(&mutex_);
    open_ = true;
  }

  // Calls are answered with the leader's address; empty where no server leads.
  void StandBy(std::string leader_address) {
    absl::MutexLock lock(&mutex_);
    open_ = false;
    leader_address_ = std::move(leader_address);
  }

  // OK where calls are answered.
  grpc::Status Check() const {
    absl::MutexLock lock(&mutex_);
    return open_ ? grpc::Status::OK : net::NotLeaderStatus(leader_address_);
  }

 private:
  mutable absl::Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  std::string leader_address_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_SERVICE_SERVING_GATE_H_
