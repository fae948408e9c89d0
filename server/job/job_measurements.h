// What the ranks of a job measured, whatever start of the job they belonged to: tapes, and the costs of their ops.
#ifndef TIDETAPE_SERVER_JOB_JOB_MEASUREMENTS_H_
#define TIDETAPE_SERVER_JOB_JOB_MEASUREMENTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "planner/job/measurement.h"
#include "planner/model/problem.h"
#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::server {

// Not thread-safe. A snapshot shares what it names and is never changed, so that planning reads it without a lock.
class JobMeasurements {
 public:
  using CostsByRank = std::map<int32_t, std::shared_ptr<const planner::CostsByHash>>;

  struct Snapshot {
    std::shared_ptr<const planner::TapesByHash> tapes;
    CostsByRank costs;
  };

  Snapshot snapshot() const { return {tapes_, costs_}; }

  bool HasTape(uint64_t structure_hash) const { return tapes_->count(structure_hash) > 0; }

  // Structure hashes that the profile names and that are not there, in order of execution.
  std::vector<uint64_t> MissingTapes(const planner::MemoryProfile& profile) const;

  // Whether a rank of this incarnation sent the tape.
  bool SentIn(const std::string& incarnation, uint64_t structure_hash) const;

  // Adds or replaces a tape. Costs are by op: those of the tape are forgotten where it was `reshaped`, or has another number of
  // ops.
  void PutTape(const v1::BlockTape& tape, const std::string& incarnation, bool reshaped);

  // Puts newly measured costs over the rank's known ones. InvalidArgument where the number of ops is not the tape's; costs of tapes
  // that are not there yet are kept.
  absl::Status AddCosts(int32_t rank, const google::protobuf::RepeatedPtrField<v1::TapeCosts>& updates);

  // All that the rank measured of the tapes that `updates` names.
  std::vector<v1::TapeCosts> CostsOf(int32_t rank, const google::protobuf::RepeatedPtrField<v1::TapeCosts>& updates) const;

  // Forgets the costs of ranks from `world_size` on.
  void ShrinkTo(int32_t world_size);

 private:
  std::shared_ptr<const planner::TapesByHash> tapes_ = std::make_shared<planner::TapesByHash>();
  std::map<uint64_t, std::string> tape_incarnations_;  // who sent the tape last
  CostsByRank costs_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_JOB_JOB_MEASUREMENTS_H_
