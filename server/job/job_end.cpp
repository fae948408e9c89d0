// How a job ends, and how it comes back.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/common/log.h"
#include "server/job/job.h"

namespace tidetape::server {

absl::Status Job::PutEnd(const JobEnd& end) {
  if (absl::Status status = store_->PutEnd(name_, end); !status.ok()) return status;
  absl::MutexLock lock(&mutex_);
  end_ = end;
  return absl::OkStatus();
}

absl::Status Job::Revive() {
  {
    absl::MutexLock lock(&mutex_);
    if (!end_.has_value()) return absl::OkStatus();
  }
  if (absl::Status status = store_->PutEnd(name_, std::nullopt); !status.ok()) return status;
  absl::MutexLock lock(&mutex_);
  end_ = std::nullopt;
  return absl::OkStatus();
}

absl::Status Job::End(const std::string& reason) {
  {
    absl::MutexLock write_lock(&write_mutex_);
    if (absl::Status status = PutEnd({clock_->Now(), reason, /*refuses=*/true}); !status.ok()) return status;
  }
  AddEvent(absl::StrCat("ended: ", reason));
  CloseStreams(absl::FailedPreconditionError(absl::StrCat("job '", name_, "' has ended: ", reason)));
  return absl::OkStatus();
}

void Job::CloseStreams(const absl::Status& status) {
  std::vector<std::shared_ptr<RankChannel>> channels;
  {
    absl::MutexLock lock(&mutex_);
    channels = TakeChannels();
  }
  for (const auto& channel : channels) channel->Close(status);
}

absl::Status Job::Sweep(absl::Duration silence) {
  bool plan_again = false;
  std::string reason;
  {
    absl::MutexLock write_lock(&write_mutex_);
    {
      absl::MutexLock lock(&mutex_);
      plan_again = absl::IsUnavailable(planning_status_);
      const bool finished = !ranks_.empty() && static_cast<int32_t>(ranks_.size()) == incarnation_.world_size &&
                            std::all_of(ranks_.begin(), ranks_.end(), [](const auto& entry) { return entry.second.said_goodbye; });
      if (end_.has_value() || ConnectedLocked() > 0) {
        // It has ended already, or runs.
      } else if (finished) {
        reason = "all ranks have finished";
      } else if (clock_->Now() - last_heard_ >= silence) {
        reason = absl::StrCat("no rank was heard of for ", absl::FormatDuration(silence));
      }
    }
    if (!reason.empty()) {
      if (absl::Status status = PutEnd({clock_->Now(), reason, /*refuses=*/false}); !status.ok()) return status;
    }
  }
  if (!reason.empty()) AddEvent(absl::StrCat("ended: ", reason));
  if (plan_again) consider_planning_(shared_from_this());
  return absl::OkStatus();
}

absl::Time Job::ended_at() const {
  absl::MutexLock lock(&mutex_);
  return end_.has_value() ? end_->at : absl::InfiniteFuture();
}

}  // namespace tidetape::server
