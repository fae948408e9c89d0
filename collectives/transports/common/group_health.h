// Which ranks of a group are still there. One object serves all transports of a rank, so that a loss that one of them notices ends
// the waits of all.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_COMMON_GROUP_HEALTH_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_COMMON_GROUP_HEALTH_H_

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tidetape::collectives {

// Thread-safe. Watchers run on the thread that reports and must not call back.
class GroupHealth {
 public:
  explicit GroupHealth(int size);

  // The rank died or cannot be reached: the group is broken. `how` completes "rank 3 ...". Only the first loss counts.
  void ReportLost(int rank, const std::string& how);
  // The rank left in order. `lost_rank` is the rank for whose loss it left, or -1.
  void ReportLeft(int rank, int lost_rank);

  // OK while a call that names `peer` can still succeed by waiting; otherwise UNAVAILABLE. Cheap while all is well.
  absl::Status Check(int peer) const;
  // OK while no rank was lost.
  absl::Status CheckGroup() const;
  bool HasLeft(int rank) const { return left_[rank].load(std::memory_order_acquire); }
  // The rank whose loss broke the group, or -1.
  int lost_rank() const { return lost_rank_.load(std::memory_order_acquire); }

  // Called after every report, until removed by the id that is returned.
  int AddWatcher(std::function<void()> watcher);
  // When it returns, the watcher does not run and never will.
  void RemoveWatcher(int id);

 private:
  void Notify();

  std::atomic<int> lost_rank_ = -1;
  std::vector<std::atomic<bool>> left_;
  mutable std::mutex mutex_;
  std::string loss_;                               // guarded by mutex_
  std::map<int, std::function<void()>> watchers_;  // guarded by mutex_
  int next_watcher_ = 0;                           // guarded by mutex_
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_COMMON_GROUP_HEALTH_H_
