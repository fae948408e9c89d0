// A small model for tests: blocks of three ops in a row, whose results backward reads.
#ifndef TIDETAPE_AGENT_LINK_TESTING_SMALL_JOB_H_
#define TIDETAPE_AGENT_LINK_TESTING_SMALL_JOB_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planner/job/measurement.h"
#include "planner/model/problem.h"

namespace tidetape::link {

// Storage 0 is the block's input; op i makes storage i + 1 from storage i. Sites are hash * 10 + storage.
inline planner::BlockTape SmallTape(uint64_t hash, const std::vector<int64_t>& bytes, const std::vector<double>& seconds) {
  planner::BlockTape tape;
  tape.name = "layers." + std::to_string(hash);
  tape.structure_hash = hash;
  planner::Storage input;
  input.kind = planner::StorageKind::kBlockInput;
  input.bytes = 64;
  input.site = hash * 10;
  tape.storages.push_back(input);
  for (size_t i = 0; i < bytes.size(); ++i) {
    planner::Storage storage;
    storage.bytes = bytes[i];
    storage.site = hash * 10 + i + 1;
    storage.label = "aten::mm#" + std::to_string(i);
    tape.storages.push_back(storage);
    planner::Op op;
    op.name = "aten::mm";
    op.cost_seconds = seconds[i];
    op.reads = {static_cast<int32_t>(i)};
    op.writes = {static_cast<int32_t>(i + 1)};
    tape.ops.push_back(op);
    tape.consumed.push_back(static_cast<int32_t>(i + 1));
  }
  return tape;
}

// One execution of each structure, in order, over a base of `base` bytes.
inline planner::MemoryProfile SmallProfile(const std::vector<uint64_t>& hashes, int64_t base, bool steady = true) {
  planner::MemoryProfile profile;
  profile.steady = steady;
  profile.head_peak_bytes = base;
  profile.optimizer_peak_bytes = base;
  for (uint64_t hash : hashes) {
    planner::ProfiledBlock block;
    block.structure_hash = hash;
    block.instance.name = "layers." + std::to_string(profile.blocks.size());
    block.instance.forward_base_bytes = base;
    block.instance.backward_base_bytes = base;
    profile.blocks.push_back(block);
  }
  return profile;
}

}  // namespace tidetape::link

#endif  // TIDETAPE_AGENT_LINK_TESTING_SMALL_JOB_H_
