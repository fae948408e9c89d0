#include "server/job/job_measurements.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/io/problem_io.h"
#include "planner/job/merge_ranks.h"
#include "server/messages/plan_message.h"

namespace tidetape::server {

std::vector<uint64_t> JobMeasurements::MissingTapes(const planner::MemoryProfile& profile) const {
  return planner::MissingTapes(profile, *tapes_);
}

bool JobMeasurements::SentIn(const std::string& incarnation, uint64_t structure_hash) const {
  const auto sender = tape_incarnations_.find(structure_hash);
  return sender != tape_incarnations_.end() && sender->second == incarnation;
}

void JobMeasurements::PutTape(const v1::BlockTape& tape, const std::string& incarnation, bool reshaped) {
  const uint64_t hash = tape.structure_hash();
  auto tapes = std::make_shared<planner::TapesByHash>(*tapes_);
  (*tapes)[hash] = planner::FromProto(tape);
  tapes_ = std::move(tapes);
  tape_incarnations_[hash] = incarnation;
  for (auto& [rank, costs] : costs_) {
    const auto own = costs->find(hash);
    if (own == costs->end()) continue;
    if (!reshaped && own->second.cost_seconds.size() == static_cast<size_t>(tape.ops_size())) continue;
    auto kept = std::make_shared<planner::CostsByHash>(*costs);
    kept->erase(hash);
    costs = std::move(kept);
  }
}

absl::Status JobMeasurements::AddCosts(int32_t rank, const google::protobuf::RepeatedPtrField<v1::TapeCosts>& updates) {
  if (updates.empty()) return absl::OkStatus();
  auto& slot = costs_[rank];
  auto costs = slot == nullptr ? std::make_shared<planner::CostsByHash>() : std::make_shared<planner::CostsByHash>(*slot);
  for (const v1::TapeCosts& update : updates) {
    const auto tape = tapes_->find(update.structure_hash());
    if (tape != tapes_->end() && tape->second.ops.size() != static_cast<size_t>(update.cost_seconds_size())) {
      return absl::InvalidArgumentError(absl::StrCat("costs of ", update.cost_seconds_size(), " ops for tape ",
                                                     absl::Hex(update.structure_hash(), absl::kZeroPad16), " of block '",
                                                     tape->second.name, "', which has ", tape->second.ops.size()));
    }
    planner::UpdateCosts(CostsFromMessage(update), *costs);
  }
  slot = std::move(costs);
  return absl::OkStatus();
}

std::vector<v1::TapeCosts> JobMeasurements::CostsOf(int32_t rank,
                                                    const google::protobuf::RepeatedPtrField<v1::TapeCosts>& updates) const {
  std::vector<v1::TapeCosts> costs;
  for (const v1::TapeCosts& update : updates) costs.push_back(CostsToMessage(costs_.at(rank)->at(update.structure_hash())));
  return costs;
}

void JobMeasurements::ShrinkTo(int32_t world_size) { costs_.erase(costs_.lower_bound(world_size), costs_.end()); }

}  // namespace tidetape::server
