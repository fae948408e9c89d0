#include "server/lease_keeper.h"

#include <utility>

#include "server/common/log.h"

namespace tidetape::server {

LeaseKeeper::LeaseKeeper(LeaderLease* lease, Options options) : lease_(lease), options_(std::move(options)) {
  thread_ = std::thread([this] { Run(); });
}

LeaseKeeper::~LeaseKeeper() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
  if (leading_.joinable()) leading_.join();
  if (term_ > 0) lease_->Release(term_).IgnoreError();  // it runs out by itself soon
}

void LeaseKeeper::Run() {
  while (Look() && !StopsWithinTheInterval()) {
  }
}

bool LeaseKeeper::StopsWithinTheInterval() {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&stopping_), options_.interval);
}

void LeaseKeeper::TakeUpTheLead(int64_t term) {
  absl::Status led = options_.lead(term);
  const std::string reason(led.message());
  if (absl::IsUnavailable(led)) spdlog::warn("this server cannot lead yet, and tries again: {}", reason);
  while (absl::IsUnavailable(led) && !StopsWithinTheInterval()) led = options_.lead(term);
  absl::MutexLock lock(&mutex_);
  lead_status_ = std::move(led);
}

bool LeaseKeeper::Look() {
  if (term_ == 0) return TakeOrStandBy();
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    status = lead_status_;
  }
  if (status.ok()) {
    status = lease_->Renew(term_);
    // While the database is away nobody else can take the lease either.
    if (status.ok() || !absl::IsFailedPrecondition(status)) {
      Complain(status);
      return true;
    }
    term_ = 0;
  }
  options_.lost(status);
  return false;
}

bool LeaseKeeper::TakeOrStandBy() {
  const auto term = lease_->TryTake(options_.address);
  absl::Status status = term.status();
  if (status.ok() && term->has_value()) {
    term_ = **term;
    spdlog::info("this server leads, term {}", term_);
    leading_ = std::thread([this, term = term_] { TakeUpTheLead(term); });
  } else if (status.ok()) {
    const auto leader = lease_->LeaderAddress();
    status = leader.status();
    if (status.ok()) options_.stand_by(*leader);
  }
  Complain(status);
  return true;
}

void LeaseKeeper::Complain(const absl::Status& status) {
  std::string complaint(status.message());
  if (complaint == complaint_) return;
  if (!complaint.empty()) spdlog::warn("the lease cannot be looked at: {}", complaint);
  if (complaint.empty()) spdlog::info("the lease can be looked at again");
  complaint_ = std::move(complaint);
}

}  // namespace tidetape::server
