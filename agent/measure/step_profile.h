// Memory through one training step: peaks of intervals, with the bytes that a plan decides about taken off.
//
// A step is cut into intervals: each block's forward, the head, the marks of each block's backward, and all the rest (optimizer,
// data loading, embedding). For each the profile keeps the most bytes alive minus planned bytes (saved and replayed storages), so
// that the planner can put any other plan's bytes on top.
#ifndef TIDETAPE_AGENT_MEASURE_STEP_PROFILE_H_
#define TIDETAPE_AGENT_MEASURE_STEP_PROFILE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

namespace tidetape::agent {

// One step of a block's backward in order of time; see tidetape.v1.BackwardEvent.
struct BackwardMark {
  std::vector<uint64_t> reads;  // sites
  std::vector<uint64_t> releases;
  int64_t peak_bytes = 0;  // until the next mark, planned bytes taken off
  int64_t start_bytes = 0;
};

// The same storages are read and released in the same order.
bool SameMarks(const std::vector<BackwardMark>& a, const std::vector<BackwardMark>& b);

// What was seen of the block at one position in the order of execution.
struct InstanceProfile {
  int64_t forward_start_bytes = 0;  // planned bytes taken off, too
  int64_t forward_peak_bytes = 0;
  std::vector<BackwardMark> marks;  // of the last execution, peaks as the largest of all executions with the same marks
  bool complete = false;            // backward ran to its end
};

struct StepMemory {
  int64_t step_peak_bytes = 0;  // everything alive, planned bytes included
  int64_t head_peak_bytes = 0;  // planned bytes taken off, like all below
  int64_t outside_peak_bytes = 0;
  std::vector<InstanceProfile> instances;  // empty where the step was not profiled
  std::vector<int64_t> live_bytes;         // at the ends of the intervals between blocks, everything counted
  // What began, in order of time: a forward as its position p, a backward as ~p. Empty where the step was not profiled.
  std::vector<int32_t> order;
};

// Thread-safe; every call but AddPlanned takes a lock.
class StepProfile {
 public:
  // The one profile of this process: the allocator's counters are the process's, too.
  static StepProfile& Get();

  // Bytes of saved and replayed storages that came to life or went.
  void AddPlanned(int64_t bytes) { planned_.fetch_add(bytes, std::memory_order_relaxed); }

  void ForwardBegins(int32_t position);
  void ForwardEnds();
  // What the block moves to host memory has left: until then planned bytes change, and the peak counts for no interval.
  void MovesEnd();

  // `first`: the backward of this execution begins. The value at `site` is about to be read; a replay may follow.
  void Reads(int32_t position, bool first, uint64_t site);
  // Around a replay: its own peak counts for the step and for no mark.
  void ReplayBegins();
  void ReplayEnds(int32_t position);
  // The value at `site` is about to be let go by its last reader, and (second call) is gone.
  void Releases(int32_t position, uint64_t site);
  void ReleaseEnds(int32_t position);
  // All storages of the execution are gone; `others_alive`: those of other executions are not.
  void BackwardEnds(int32_t position, bool others_alive);

  // The most bytes alive since the last call of anything here, in a replay: for an op's workspace.
  int64_t TakeReplayPeak();

  // The most bytes alive since the last call of anything here, planned ones taken off; the interval goes on. For an op of a
  // forward.
  int64_t TakeForwardPeak();

  // The memory of the step that ends here; `profile_next`: intervals are taken in the next one.
  StepMemory FinishStep(bool profile_next);

  bool profiling() const { return profiling_.load(std::memory_order_relaxed); }

 private:
  // What lives on from before the step, an abandoned graph say, is a base that no plan decides about.
  int64_t PlannedInStep() const { return planned_.load(std::memory_order_relaxed) - planned_before_; }

  // The marks of the running execution beside what former executions of this step left.
  struct Slot {
    InstanceProfile profile;
    std::deque<BackwardMark> marks;  // a deque: the sink points into it
  };
  int64_t EndInterval();       // its peak, planned bytes taken off
  void Switch(int64_t* sink);  // ends the interval, and begins one that counts for `sink`
  Slot& At(int32_t position);
  void NewMark(Slot& slot);
  void Merge(Slot& slot);

  std::mutex mutex_;
  std::atomic<int64_t> planned_{0};
  std::atomic<bool> profiling_{false};
  int64_t planned_before_ = 0;  // when the step began
  int64_t step_peak_ = 0;
  int64_t outside_ = 0;
  int64_t between_ = 0;  // since the last block's forward: the next block's, or the head's
  int64_t head_ = 0;
  int64_t scratch_ = 0;  // intervals in which planned bytes change: moves, replays and releases
  int64_t* sink_ = &outside_;
  std::deque<Slot> slots_;
  std::vector<int64_t> live_;
  std::vector<int32_t> order_;
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_MEASURE_STEP_PROFILE_H_
