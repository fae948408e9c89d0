#include "server/job/pins.h"

#include <fnmatch.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tidetape::server {
namespace {

bool Matches(const std::string& glob, const std::string& text) {
  return glob.empty() || fnmatch(glob.c_str(), text.c_str(), 0) == 0;
}

// The pins that name the block, by position.
std::vector<int> PinsOfBlock(const google::protobuf::RepeatedPtrField<v1::Pin>& pins, const std::string& block) {
  std::vector<int> matching;
  for (int i = 0; i < pins.size(); ++i) {
    if (Matches(pins[i].block_glob(), block)) matching.push_back(i);
  }
  return matching;
}

int PinTape(const google::protobuf::RepeatedPtrField<v1::Pin>& pins, const std::vector<int>& matching, planner::BlockTape& tape) {
  int pinned = 0;
  for (planner::Storage& storage : tape.storages) {
    if (storage.kind != planner::StorageKind::kIntermediate || storage.must_save) continue;
    const v1::Pin* last = nullptr;
    for (const int i : matching) {
      if (Matches(pins[i].label_glob(), storage.label)) last = &pins[i];
    }
    if (last == nullptr) continue;
    storage.must_save = last->action() == v1::ACTION_SAVE;
    storage.must_recompute = last->action() == v1::ACTION_REPLAY;
    ++pinned;
  }
  return pinned;
}

}  // namespace

int ApplyPins(const google::protobuf::RepeatedPtrField<v1::Pin>& pins, planner::PlanningProblem& problem) {
  if (pins.empty()) return 0;
  struct PinnedTape {
    int32_t index = 0;
    int pinned = 0;
  };
  // One tape for each original and each set of pins on it; the originals stay for blocks without pins.
  std::map<std::pair<int32_t, std::vector<int>>, PinnedTape> tapes;
  int pinned = 0;
  for (planner::BlockInstance& block : problem.blocks) {
    if (!block.options.empty()) continue;
    std::vector<int> matching = PinsOfBlock(pins, block.name);
    if (matching.empty()) continue;
    const auto [it, inserted] = tapes.try_emplace({block.tape, matching});
    PinnedTape& tape = it->second;
    if (inserted) {
      tape.index = static_cast<int32_t>(problem.tapes.size());
      planner::BlockTape copy = problem.tapes[block.tape];
      tape.pinned = PinTape(pins, matching, copy);
      problem.tapes.push_back(std::move(copy));
    }
    block.tape = tape.index;
    pinned += tape.pinned;
  }
  return pinned;
}

}  // namespace tidetape::server
