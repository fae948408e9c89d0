// How a job speaks to a rank: the agent's stream, as the job sees it.
#ifndef TIDETAPE_SERVER_JOB_RANK_CHANNEL_H_
#define TIDETAPE_SERVER_JOB_RANK_CHANNEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::server {

// Thread-safe. No call blocks, and none does anything once the stream has ended.
class RankChannel {
 public:
  virtual ~RankChannel() = default;

  // A candidate. Of several plans that wait to be written only the one with the highest generation is sent.
  virtual void SendPlan(std::shared_ptr<const v1::Plan> plan) = 0;

  virtual void RequestTapes(const std::vector<uint64_t>& structure_hashes) = 0;

  // Ends the stream with this status.
  virtual void Close(const absl::Status& status) = 0;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_JOB_RANK_CHANNEL_H_
