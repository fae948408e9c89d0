// The planning problem as plain structs: what agents measured, in the words of the planner.
//
// The messages of proto/tidetape/v1/tape.proto mirror these structs field by field; planner/io converts. Indices are positions in
// the list that the comment names, bytes are requested bytes, times are seconds.
#ifndef TIDETAPE_PLANNER_MODEL_PROBLEM_H_
#define TIDETAPE_PLANNER_MODEL_PROBLEM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planner/model/phase.h"

namespace tidetape::planner {

enum class StorageKind { kIntermediate, kBlockInput, kParameter };

// A unit of memory inside a block: one torch storage together with all its free views.
struct Storage {
  int64_t bytes = 0;
  StorageKind kind = StorageKind::kIntermediate;
  bool must_save = false;              // the content cannot be replayed
  bool must_recompute = false;         // no plan may save it
  bool held_anyway = false;            // kept alive by somebody else: saving it costs 0 bytes
  uint64_t site = 0;                   // the name that survives from step to step
  std::string label;                   // for people
  std::vector<int64_t> sampled_bytes;  // in steps that were seen, where they differ; as many for every storage of the tape, or none
};

struct Op {
  std::string name;
  double cost_seconds = 0;
  std::vector<int32_t> reads;   // storages
  std::vector<int32_t> writes;  // storages; read and written: in place
  bool replayable = true;
  int64_t replay_workspace_bytes = 0;
};

// A version of a storage that a later op of the block overwrites, consumed by backward.
struct Value {
  int32_t storage = 0;
  int32_t version = 0;
  double copy_seconds = 0;
};

// One step of the block's backward in order of time: reads first (missing storages are replayed), then the interval until the next
// event, and at its end the releases.
struct BackwardEvent {
  std::vector<int32_t> reads;       // storages
  std::vector<int32_t> releases;    // storages that nobody reads after this event
  int64_t gradient_live_bytes = 0;  // most bytes in the interval above the backward base, planned storages not counted
  int64_t start_live_bytes = 0;     // the same at the moment the event begins
};

struct BlockTape {
  std::string name;
  uint64_t structure_hash = 0;
  std::vector<Storage> storages;
  std::vector<Op> ops;            // program order
  std::vector<int32_t> consumed;  // storages, in order of first reading in backward
  std::vector<Value> values;
  std::vector<BackwardEvent> backward;
  // One an op, or none: while it runs in forward, so many bytes less are alive than at the forward's peak, saved ones not counted.
  std::vector<int64_t> forward_slack_bytes;
};

// A measured way to run a block that has no tape.
struct BlockOption {
  int64_t saved_bytes = 0;
  int64_t own_peak_bytes = 0;
  double seconds = 0;
  std::string label;
};

// One execution of a block within a step.
struct BlockInstance {
  std::string name;
  int32_t tape = 0;  // PlanningProblem::tapes; ignored where options are given
  std::vector<BlockOption> options;
  int64_t forward_base_bytes = 0;            // most bytes in its forward, without any saved activation planned here
  int64_t backward_base_bytes = 0;           // bytes when its backward begins, likewise
  int64_t backward_transient_bytes = 0;      // what its backward adds at its worst, where the tape has no events
  std::vector<int64_t> gradient_live_bytes;  // one an event of the tape: overrides the event's own; or empty
  std::vector<int64_t> start_live_bytes;     // likewise
  std::vector<int32_t> held_inputs;          // storages: inputs that this execution alone keeps alive, so that a plan may move them
};

// One part of a schedule.
struct ScheduledPart {
  Phase phase = Phase::kForward;  // not kOptimizer, which comes last
  int32_t block = -1;             // PlanningProblem::blocks, for kForward and kBackward
};

// What of measured bytes is held free for steps that need more than those that were seen: a plan keeps the limit with it, and is
// expected to stay below.
struct Headroom {
  int64_t block_bytes = 0;      // of the forward and backward base of each block
  int64_t head_bytes = 0;       // of head_peak_bytes
  int64_t optimizer_bytes = 0;  // of optimizer_peak_bytes
};

struct PlanningProblem {
  int64_t memory_limit_bytes = 0;  // on the step peak; 0: the plan with the least step peak
  std::vector<BlockTape> tapes;
  std::vector<BlockInstance> blocks;  // in order of execution
  int64_t head_peak_bytes = 0;
  int64_t optimizer_peak_bytes = 0;
  int64_t host_bytes_limit = 0;      // on what all blocks together move to the host; 0: nothing is moved
  double host_bytes_per_second = 0;  // there or back
  // The parts of the step in order of time, where several micro-batches are alive at once, as in pipelines: each block's forward
  // once and after it its backward once, and heads where there are any. Empty: all forwards in the order of blocks, the head, and
  // all backwards in the opposite order. Nothing is moved to the host under a schedule.
  std::vector<ScheduledPart> schedule;
  Headroom headroom;
};

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_MODEL_PROBLEM_H_
