#include "collectives/simulator/baselines.h"

#include <utility>

namespace tidetape::collectives {
namespace {

Step Local(StepKind kind, DType dtype, int64_t bytes) {
  Step step;
  step.kind = kind;
  step.dtype = dtype;
  step.bytes = bytes;
  return step;
}

Schedule Empty(const Group& group, const char* collective) {
  Schedule schedule;
  schedule.collective = collective;
  schedule.unit = "baseline";
  schedule.rank = group.rank();
  schedule.phases = {{"all", 0}};
  return schedule;
}

// Ring `ring` visits the local ranks of a node from `ring` on, then those of the next node.
int32_t Neighbour(const Group& group, int32_t ring, int32_t direction) {
  const int32_t size = static_cast<int32_t>(group.shards.size()), per_node = group.per_node;
  const int32_t place = group.node() * per_node + (group.local() - ring + per_node) % per_node;
  const int32_t other = (place + direction + size) % size;
  return group.rank_at(other / per_node, (other % per_node + ring) % per_node);
}

// `bytes` of each ring and round; with an addition of what came, where `adds`.
void AddRings(const Group& group, int64_t bytes, bool adds, Schedule& schedule) {
  for (int32_t round = 1; round < static_cast<int32_t>(group.shards.size()); ++round) {
    for (int32_t ring = 0; ring < group.per_node; ++ring) {
      Step put;
      put.kind = StepKind::kPut;
      put.peer = Neighbour(group, ring, 1);
      put.signal = ring;
      put.bytes = bytes;
      schedule.steps.push_back(put);
    }
    for (int32_t ring = 0; ring < group.per_node; ++ring) {
      Step wait;
      wait.kind = StepKind::kWait;
      wait.peer = Neighbour(group, ring, -1);
      wait.signal = ring;
      wait.count = 1;
      schedule.steps.push_back(wait);
    }
    // One kernel reduces what all rings brought.
    if (adds) schedule.steps.push_back(Local(StepKind::kAdd, DType::kFloat32, bytes * group.per_node));
  }
}

}  // namespace

Schedule StockAllGather(const Group& group, int64_t shard_bytes) {
  Schedule schedule = Empty(group, "all-gather");
  schedule.steps.push_back(Local(StepKind::kCopy, DType::kUInt8, shard_bytes));
  AddRings(group, shard_bytes / group.per_node, false, schedule);
  schedule.steps.push_back(Local(StepKind::kCopy, DType::kUInt8, shard_bytes * static_cast<int64_t>(group.shards.size())));
  return schedule;
}

Schedule StockReduceScatter(const Group& group, int64_t shard_elements) {
  Schedule schedule = Empty(group, "reduce-scatter");
  const int64_t elements = shard_elements * static_cast<int64_t>(group.shards.size());
  schedule.steps.push_back(Local(StepKind::kStore, DType::kBFloat16, elements * 2));
  AddRings(group, shard_elements * 4 / group.per_node, true, schedule);
  schedule.steps.push_back(Local(StepKind::kScale, DType::kFloat32, shard_elements * 4));
  return schedule;
}

Schedule WithGatherCopies(Schedule schedule, int64_t shard_bytes, int64_t unit_bytes) {
  schedule.steps.insert(schedule.steps.begin(), Local(StepKind::kCopy, DType::kUInt8, shard_bytes));
  schedule.steps.push_back(Local(StepKind::kCopy, DType::kUInt8, unit_bytes));
  schedule.phases = {{"all", 0}};
  return schedule;
}

Schedule WithReduceCopies(Schedule schedule, int64_t unit_elements) {
  schedule.steps.insert(schedule.steps.begin(), Local(StepKind::kStore, DType::kBFloat16, unit_elements * 2));
  schedule.phases = {{"all", 0}};
  return schedule;
}

}  // namespace tidetape::collectives
