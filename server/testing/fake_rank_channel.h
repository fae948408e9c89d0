// A rank's stream that only remembers what the job said.
#ifndef TIDETAPE_SERVER_TESTING_FAKE_RANK_CHANNEL_H_
#define TIDETAPE_SERVER_TESTING_FAKE_RANK_CHANNEL_H_

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "server/job/rank_channel.h"

namespace tidetape::server {

class FakeRankChannel final : public RankChannel {
 public:
  void SendPlan(std::shared_ptr<const v1::Plan> plan) override {
    absl::MutexLock lock(&mutex_);
    plans_.push_back(std::move(plan));
  }
  void RequestTapes(const std::vector<uint64_t>& structure_hashes) override {
    absl::MutexLock lock(&mutex_);
    requested_.insert(requested_.end(), structure_hashes.begin(), structure_hashes.end());
  }
  void Close(const absl::Status& status) override {
    absl::MutexLock lock(&mutex_);
    closed_ = status;
  }

  std::vector<std::shared_ptr<const v1::Plan>> plans() const {
    absl::MutexLock lock(&mutex_);
    return plans_;
  }
  std::vector<uint64_t> requested() const {
    absl::MutexLock lock(&mutex_);
    return requested_;
  }
  std::optional<absl::Status> closed() const {
    absl::MutexLock lock(&mutex_);
    return closed_;
  }

 private:
  mutable absl::Mutex mutex_;
  std::vector<std::shared_ptr<const v1::Plan>> plans_;
  std::vector<uint64_t> requested_;
  std::optional<absl::Status> closed_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_TESTING_FAKE_RANK_CHANNEL_H_
