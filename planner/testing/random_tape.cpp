#include "planner/testing/random_tape.h"

#include <algorithm>
#include <string>
#include <vector>

namespace tidetape::planner {
namespace {

class TapeMaker {
 public:
  TapeMaker(std::mt19937_64& random, int intermediates) : random_(random), intermediates_(intermediates), whole_(Chance(50)) {}

  BlockTape Make() {
    for (int i = 0; i < 2; ++i) AddStorage(StorageKind::kBlockInput);
    for (int i = 0; i < 2; ++i) AddStorage(StorageKind::kParameter);
    while (made_ < intermediates_) AddOp();
    AddConsumed();
    if (Chance(60)) AddEvents();
    return std::move(tape_);
  }

 private:
  bool Chance(int percent) { return static_cast<int>(random_() % 100) < percent; }
  int Below(int n) { return static_cast<int>(random_() % n); }

  int32_t AddStorage(StorageKind kind) {
    const int32_t s = static_cast<int32_t>(tape_.storages.size());
    Storage storage{.bytes = Chance(12) ? 0 : 1 + Below(20), .kind = kind, .site = 1000u + s, .label = "s" + std::to_string(s)};
    if (kind == StorageKind::kIntermediate) {
      ++made_;
      storage.must_save = Chance(6);
      storage.must_recompute = !storage.must_save && Chance(6);
      storage.held_anyway = Chance(8);
    }
    tape_.storages.push_back(storage);
    return s;
  }

  void AddOp() {
    Op op{.name = "op" + std::to_string(tape_.ops.size())};
    const int available = static_cast<int>(tape_.storages.size());
    for (int r = Below(3); r >= 0; --r) {
      // Mostly recent storages, so that chains grow.
      const int back = Chance(70) ? 1 + Below(std::min(4, available)) : 1 + Below(available);
      op.reads.push_back(available - back);
    }
    const int kind = Below(100);
    if (kind < 20 && Rewritable(op.reads[0])) {
      op.writes.push_back(op.reads[0]);  // in place
    } else if (kind < 28 && Rewritable(available - 1)) {
      op.writes.push_back(available - 1);  // a slice of it
    } else if (kind < 30) {
      op.writes.push_back(Below(4));  // a block input or a parameter
    }
    if (op.writes.empty() || Chance(15)) op.writes.push_back(AddStorage(StorageKind::kIntermediate));
    if (made_ < intermediates_ && Chance(15)) op.writes.push_back(AddStorage(StorageKind::kIntermediate));
    op.replayable = !Chance(5);
    op.cost_seconds = Chance(15) ? 0 : whole_ ? 1 + Below(9) : std::uniform_real_distribution<double>(0.1, 10)(random_);
    op.replay_workspace_bytes = Chance(30) ? Below(15) : 0;
    tape_.ops.push_back(std::move(op));
  }

  bool Rewritable(int32_t s) const { return tape_.storages[s].kind == StorageKind::kIntermediate; }

  void AddConsumed() {
    for (size_t s = 0; s < tape_.storages.size(); ++s) {
      if (Chance(45)) tape_.consumed.push_back(static_cast<int32_t>(s));
    }
    if (Chance(70)) std::reverse(tape_.consumed.begin(), tape_.consumed.end());
  }

  void AddEvents() {
    std::vector<int32_t> live;
    for (size_t next = 0; next < tape_.consumed.size() || Chance(30);) {
      BackwardEvent event{.gradient_live_bytes = Below(30), .start_live_bytes = Below(20)};
      for (int r = Below(3); r >= 0 && next < tape_.consumed.size(); --r) {
        event.reads.push_back(tape_.consumed[next]);
        live.push_back(tape_.consumed[next++]);
      }
      if (!live.empty() && Chance(30)) event.reads.push_back(live[Below(live.size())]);
      for (size_t i = 0; i < live.size();) {
        if (Chance(60)) {
          event.releases.push_back(live[i]);
          live.erase(live.begin() + i);
        } else {
          ++i;
        }
      }
      tape_.backward.push_back(std::move(event));
    }
  }

  std::mt19937_64& random_;
  const int intermediates_;
  const bool whole_;  // costs are small whole numbers, so that plans tie
  int made_ = 0;
  BlockTape tape_;
};

}  // namespace

BlockTape RandomTape(std::mt19937_64& random, int intermediates) {
  BlockTape tape = TapeMaker(random, intermediates).Make();
  tape.name = "random";
  return tape;
}

PlanningProblem RandomProblem(std::mt19937_64& random, int blocks, int intermediates) {
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  PlanningProblem problem;
  const int tapes = 1 + below(2);
  for (int t = 0; t < tapes; ++t) problem.tapes.push_back(RandomTape(random, intermediates));
  for (int b = 0; b < blocks; ++b) {
    BlockInstance block{.name = "block" + std::to_string(b), .tape = below(tapes)};
    block.forward_base_bytes = below(60);
    block.backward_base_bytes = below(60);
    block.backward_transient_bytes = below(30);
    if (below(5) == 0) {
      for (int o = below(3); o >= 0; --o) {
        block.options.push_back({.saved_bytes = below(40), .own_peak_bytes = below(80), .seconds = 1.0 * below(20)});
      }
    } else if (below(3) == 0) {
      for (size_t e = 0; e < problem.tapes[block.tape].backward.size(); ++e) {
        block.gradient_live_bytes.push_back(below(40));
        block.start_live_bytes.push_back(below(25));
      }
    }
    problem.blocks.push_back(std::move(block));
  }
  problem.head_peak_bytes = below(80);
  problem.optimizer_peak_bytes = below(40);
  return problem;
}

BlockTape LayerTape(std::mt19937_64& random, int ops) {
  BlockTape tape{.name = "synthetic layer"};
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
  tape.storages.push_back({.bytes = 1 << 20, .kind = StorageKind::kBlockInput});
  for (int i = 0; i < ops; ++i) {
    const int32_t output = static_cast<int32_t>(tape.storages.size());
    const bool product = below(8) == 0;
    Op op{.name = product ? "product" : "elementwise"};
    op.cost_seconds = product ? uniform(50e-6, 500e-6) : uniform(2e-6, 20e-6);
    op.reads.push_back(output - 1);
    if (below(3) == 0) op.reads.push_back(output - 1 - below(std::min(output, 30)));
    op.writes.push_back(output);
    tape.ops.push_back(std::move(op));
    tape.storages.push_back({.bytes = (1 + below(64)) * int64_t{16384}, .site = static_cast<uint64_t>(output)});
  }
  // Backward reads from the end; each reading is an event.
  for (int32_t s = static_cast<int32_t>(tape.storages.size()) - 1; s >= 0; --s) {
    if (below(2) == 0) continue;
    tape.consumed.push_back(s);
    tape.backward.push_back({.reads = {s}, .releases = {s}, .gradient_live_bytes = 1 << 20, .start_live_bytes = 1 << 19});
  }
  return tape;
}

}  // namespace tidetape::planner
