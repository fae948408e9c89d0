#include "planner/testing/oracle.h"

#include <algorithm>
#include <limits>
#include <map>

#include "gtest/gtest.h"

namespace tidetape::planner {
namespace {

bool Has(const std::vector<int32_t>& list, int32_t value) { return std::find(list.begin(), list.end(), value) != list.end(); }

bool Free(const BlockTape& tape, int32_t s) { return tape.storages[s].kind != StorageKind::kIntermediate; }

// Ops before `end` that write the storage.
int Version(const BlockTape& tape, int32_t s, int32_t end) {
  int version = 0;
  for (int32_t i = 0; i < end; ++i) version += Has(tape.ops[i].writes, s);
  return version;
}

int LastVersion(const BlockTape& tape, int32_t s) { return Version(tape, s, tape.ops.size()); }

int32_t WriterOf(const BlockTape& tape, int32_t s, int version) {
  for (size_t i = 0; i < tape.ops.size(); ++i) {
    if (Has(tape.ops[i].writes, s) && --version == 0) return i;
  }
  return -1;
}

bool Replay(const BlockTape& tape, const std::vector<int32_t>& saved, int32_t op, std::set<int32_t>& replayed);

// The content is there, or gets there by replay.
bool Provide(const BlockTape& tape, const std::vector<int32_t>& saved, int32_t s, int version, std::set<int32_t>& replayed) {
  const bool last = version == LastVersion(tape, s);
  if (Free(tape, s)) return last;
  if (Has(saved, s)) return last;
  if (version == 0) return false;
  return Replay(tape, saved, WriterOf(tape, s, version), replayed);
}

bool Replay(const BlockTape& tape, const std::vector<int32_t>& saved, int32_t op, std::set<int32_t>& replayed) {
  if (!replayed.insert(op).second) return true;
  if (!tape.ops[op].replayable) return false;
  for (int32_t s : tape.ops[op].reads) {
    if (!Provide(tape, saved, s, Version(tape, s, op), replayed)) return false;
  }
  for (int32_t s : tape.ops[op].writes) {
    if (Free(tape, s)) return false;
    if (Has(saved, s) && LastVersion(tape, s) > 1) return false;
    if (Version(tape, s, op) > 0 && !Provide(tape, saved, s, Version(tape, s, op), replayed)) return false;
  }
  return true;
}

class Walk {
 public:
  Walk(const BlockTape& tape, const OraclePlan& plan) : tape_(tape), plan_(plan), left_(plan.replayed) {
    for (int32_t s : plan.saved) content_[s] = LastVersion(tape, s);
    for (int32_t s : tape.consumed) {
      if (!Free(tape, s)) held_.insert(s);
    }
  }

  int64_t Alive() const {
    int64_t bytes = 0;
    for (const auto& [s, version] : content_) {
      const bool nothing = Has(plan_.saved, s) && tape_.storages[s].held_anyway;
      bytes += nothing ? 0 : tape_.storages[s].bytes;
    }
    return bytes;
  }

  // Most bytes beside `start` while the storage is made; -1: it was there.
  int64_t Read(int32_t s) {
    if (Free(tape_, s)) return -1;
    int64_t most = -1;
    if (content_.count(s) == 0 || content_[s] != LastVersion(tape_, s)) {
      std::set<int32_t> needed;
      Collect(WriterOf(tape_, s, LastVersion(tape_, s)), needed);
      for (int32_t op : needed) most = std::max(most, Run(op));
    }
    EXPECT_EQ(content_.count(s), 1u) << "backward misses storage " << s;
    EXPECT_EQ(content_[s], LastVersion(tape_, s)) << "backward reads a wrong version of storage " << s;
    if (most < 0) return most;
    const std::set<int32_t> waiting = left_;
    for (int32_t op : waiting) {
      if (Ready(op) && After(op) <= Alive()) most = std::max(most, Run(op));
    }
    return most;
  }

  void Release(int32_t s) {
    held_.erase(s);
    Drop(s);
  }

 private:
  void Collect(int32_t op, std::set<int32_t>& needed) {
    if (left_.count(op) == 0 || !needed.insert(op).second) return;
    std::vector<int32_t> touched = tape_.ops[op].reads;
    touched.insert(touched.end(), tape_.ops[op].writes.begin(), tape_.ops[op].writes.end());
    for (int32_t s : touched) {
      const int version = Version(tape_, s, op);
      if (Free(tape_, s) || version == 0) continue;
      if (Has(plan_.saved, s) && version == LastVersion(tape_, s)) continue;
      Collect(WriterOf(tape_, s, version), needed);
    }
    for (int32_t s : tape_.ops[op].writes) {
      for (int32_t earlier = 0; earlier < op; ++earlier) {
        if (Has(tape_.ops[earlier].reads, s) && Version(tape_, s, earlier) == Version(tape_, s, op)) Collect(earlier, needed);
      }
    }
  }

  // All that the op touches is there, and nobody waits to read what it overwrites.
  bool Ready(int32_t op) {
    std::set<int32_t> needed;
    Collect(op, needed);
    return needed.size() == 1;
  }

  // Bytes once the op has run, found by running it in a copy of the walk.
  int64_t After(int32_t op) const {
    Walk copy = *this;
    copy.Run(op);
    return copy.Alive();
  }

  int64_t Run(int32_t op) {
    for (int32_t s : tape_.ops[op].reads) {
      if (Free(tape_, s)) continue;
      EXPECT_EQ(content_.count(s), 1u) << "op " << op << " misses storage " << s;
      EXPECT_EQ(content_[s], Version(tape_, s, op)) << "op " << op << " reads a wrong version of storage " << s;
    }
    for (int32_t s : tape_.ops[op].writes) {
      const int version = Version(tape_, s, op);
      if (version > 0 && content_.count(s) == 1) {
        EXPECT_EQ(content_[s], version) << "op " << op << " overwrites a wrong version of storage " << s;
      }
      content_[s] = version + 1;
    }
    const int64_t bytes = Alive() + tape_.ops[op].replay_workspace_bytes;
    left_.erase(op);
    for (int32_t s : tape_.ops[op].reads) Drop(s);
    for (int32_t s : tape_.ops[op].writes) Drop(s);
    return bytes;
  }

  void Drop(int32_t s) {
    if (held_.count(s) == 1) return;
    for (int32_t op : left_) {
      if (Has(tape_.ops[op].reads, s)) return;
    }
    content_.erase(s);
  }

  const BlockTape& tape_;
  const OraclePlan& plan_;
  std::set<int32_t> left_;
  std::set<int32_t> held_;
  std::map<int32_t, int> content_;  // storage to the version that is there
};

}  // namespace

std::optional<OraclePlan> OracleEvaluate(const BlockTape& tape, const std::vector<int32_t>& saved) {
  OraclePlan plan{.saved = saved};
  for (size_t s = 0; s < tape.storages.size(); ++s) {
    const Storage& storage = tape.storages[s];
    if (Free(tape, s)) continue;
    if (storage.must_save && !Has(saved, s)) return std::nullopt;
    if (storage.must_recompute && Has(saved, s)) return std::nullopt;
    if (Has(saved, s) && !storage.held_anyway) plan.bytes += storage.bytes;
  }
  for (int32_t s : tape.consumed) {
    if (!Free(tape, s) && !Provide(tape, saved, s, LastVersion(tape, s), plan.replayed)) return std::nullopt;
  }
  for (int32_t op : plan.replayed) plan.seconds += tape.ops[op].cost_seconds;
  return plan;
}

std::vector<OraclePlan> AllPlans(const BlockTape& tape) {
  std::vector<int32_t> intermediates;
  for (size_t s = 0; s < tape.storages.size(); ++s) {
    if (!Free(tape, s)) intermediates.push_back(s);
  }
  std::vector<OraclePlan> plans;
  for (uint64_t set = 0; set < uint64_t{1} << intermediates.size(); ++set) {
    std::vector<int32_t> saved;
    for (size_t i = 0; i < intermediates.size(); ++i) {
      if (set >> i & 1) saved.push_back(intermediates[i]);
    }
    if (auto plan = OracleEvaluate(tape, saved); plan.has_value()) plans.push_back(*std::move(plan));
  }
  return plans;
}

bool IsInRegion(const OraclePlan& plan, const BlockTape& region, const BlockTape& tape) {
  for (size_t s = 0; s < region.storages.size(); ++s) {
    const bool saved = std::find(plan.saved.begin(), plan.saved.end(), static_cast<int32_t>(s)) != plan.saved.end();
    if (region.storages[s].must_save && !tape.storages[s].must_save && !saved) return false;
    if (region.storages[s].must_recompute && !tape.storages[s].must_recompute && saved) return false;
  }
  return true;
}

int64_t OracleOwnPeak(const BlockTape& tape, const BlockInstance& instance, const OraclePlan& plan) {
  Walk walk(tape, plan);
  std::vector<BackwardEvent> events = tape.backward;
  if (events.empty()) {
    events.push_back({.reads = tape.consumed, .releases = tape.consumed, .gradient_live_bytes = instance.backward_transient_bytes});
  }
  int64_t peak = std::numeric_limits<int64_t>::min();
  for (size_t e = 0; e < events.size(); ++e) {
    const int64_t start = instance.start_live_bytes.empty() ? events[e].start_live_bytes : instance.start_live_bytes[e];
    const int64_t live = instance.gradient_live_bytes.empty() ? events[e].gradient_live_bytes : instance.gradient_live_bytes[e];
    for (int32_t s : events[e].reads) {
      const int64_t bytes = walk.Read(s);
      if (bytes >= 0) peak = std::max(peak, start + bytes);
    }
    peak = std::max(peak, live + walk.Alive());
    for (int32_t s : events[e].releases) walk.Release(s);
  }
  return peak;
}

int64_t OracleStepPeak(const PlanningProblem& problem, const std::vector<int64_t>& saved, const std::vector<int64_t>& own_peaks) {
  int64_t peak = problem.optimizer_peak_bytes, before = 0;
  for (size_t k = 0; k < saved.size(); ++k) {
    peak = std::max(peak, problem.blocks[k].forward_base_bytes + before + saved[k]);
    peak = std::max(peak, problem.blocks[k].backward_base_bytes + before + own_peaks[k]);
    before += saved[k];
  }
  return std::max(peak, problem.head_peak_bytes + before);
}

int64_t OracleMovingStepPeak(const PlanningProblem& problem, const std::vector<int64_t>& saved, const std::vector<int64_t>& moved,
                             const std::vector<int64_t>& own_peaks) {
  const size_t blocks = saved.size();
  std::vector<int64_t> device(blocks, 0);  // what each block has there beside what the bases count
  const auto all = [&] {
    int64_t bytes = 0;
    for (int64_t of_block : device) bytes += of_block;
    return bytes;
  };
  int64_t peak = 0;
  for (size_t k = 0; k < blocks; ++k) {
    device[k] = saved[k] + moved[k];
    peak = std::max(peak, problem.blocks[k].forward_base_bytes + all());
    device[k] -= moved[k];
  }
  peak = std::max(peak, problem.head_peak_bytes + all());
  for (size_t k = blocks; k-- > 0;) {
    if (k > 0) device[k - 1] += moved[k - 1];
    device[k] = own_peaks[k];
    peak = std::max(peak, problem.blocks[k].backward_base_bytes + all());
    device[k] = 0;
  }
  return std::max(peak, problem.optimizer_peak_bytes);
}

}  // namespace tidetape::planner
