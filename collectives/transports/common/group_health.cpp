#include "collectives/transports/common/group_health.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tidetape::collectives {

GroupHealth::GroupHealth(int size) : left_(size) {}

void GroupHealth::ReportLost(int rank, const std::string& how) {
  {
    std::lock_guard lock(mutex_);
    if (lost_rank_.load(std::memory_order_relaxed) >= 0) return;
    loss_ = absl::StrCat("rank ", rank, " ", how);
    lost_rank_.store(rank, std::memory_order_release);
  }
  Notify();
}

void GroupHealth::ReportLeft(int rank, int lost_rank) {
  if (lost_rank >= 0) ReportLost(lost_rank, absl::StrCat("is lost, says rank ", rank, ", which left for that reason"));
  left_[rank].store(true, std::memory_order_release);
  Notify();
}

absl::Status GroupHealth::CheckGroup() const {
  if (lost_rank() < 0) return absl::OkStatus();
  std::lock_guard lock(mutex_);
  return absl::UnavailableError(absl::StrCat(loss_, "; the group is broken"));
}

absl::Status GroupHealth::Check(int peer) const {
  if (absl::Status status = CheckGroup(); !status.ok()) return status;
  if (HasLeft(peer)) return absl::UnavailableError(absl::StrCat("rank ", peer, " has left the group"));
  return absl::OkStatus();
}

int GroupHealth::AddWatcher(std::function<void()> watcher) {
  std::lock_guard lock(mutex_);
  watchers_.emplace(next_watcher_, std::move(watcher));
  return next_watcher_++;
}

void GroupHealth::RemoveWatcher(int id) {
  std::lock_guard lock(mutex_);
  watchers_.erase(id);
}

void GroupHealth::Notify() {
  std::lock_guard lock(mutex_);
  for (const auto& [id, watcher] : watchers_) watcher();
}

}  // namespace tidetape::collectives
