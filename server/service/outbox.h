// What waits to be written to an agent: one slot for each kind of message.
//
// A reader that is slow therefore costs a bounded amount of memory, and what it misses is only what a newer message made worthless:
// acknowledgements are cumulative, of several plans only the newest counts, requests for tapes add up in one set.
#ifndef TIDETAPE_SERVER_SERVICE_OUTBOX_H_
#define TIDETAPE_SERVER_SERVICE_OUTBOX_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::server {

// Not thread-safe. Nothing leaves before the welcome.
class Outbox {
 public:
  void PutWelcome(v1::Welcome welcome) { welcome_ = std::move(welcome); }
  void PutAck(int64_t sequence) { ack_ = std::max(ack_, sequence); }
  void PutTapeRequest(const std::vector<uint64_t>& hashes) { tapes_.insert(hashes.begin(), hashes.end()); }
  void PutDrain(double reconnect_after_seconds) { drain_ = reconnect_after_seconds; }

  void PutPlan(std::shared_ptr<const v1::Plan> plan) {
    if (plan_ == nullptr || plan_->generation() < plan->generation()) plan_ = std::move(plan);
  }

  // The next message to write; nothing where none waits.
  std::optional<v1::ConnectResponse> Take() {
    v1::ConnectResponse response;
    if (welcome_.has_value()) {
      *response.mutable_welcome() = *std::exchange(welcome_, std::nullopt);
      welcomed_ = true;
    } else if (!welcomed_) {
      return std::nullopt;
    } else if (ack_ > acked_) {
      response.mutable_ack()->set_sequence(acked_ = ack_);
    } else if (!tapes_.empty()) {
      response.mutable_tape_request()->mutable_structure_hashes()->Add(tapes_.begin(), tapes_.end());
      tapes_.clear();
    } else if (plan_ != nullptr) {
      *response.mutable_plan() = *std::exchange(plan_, nullptr);
    } else if (drain_.has_value()) {
      response.mutable_drain()->set_reconnect_after_seconds(*std::exchange(drain_, std::nullopt));
    } else {
      return std::nullopt;
    }
    return response;
  }

 private:
  std::optional<v1::Welcome> welcome_;
  bool welcomed_ = false;
  int64_t ack_ = 0;
  int64_t acked_ = 0;
  std::set<uint64_t> tapes_;
  std::shared_ptr<const v1::Plan> plan_;
  std::optional<double> drain_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_SERVICE_OUTBOX_H_
