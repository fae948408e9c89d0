// The one interface between the training process and the planner, remote or embedded.
//
// Plain C: the tape's library (torch) and the link's library (gRPC, protobuf) are separate shared objects, because torch carries a
// protobuf of its own. The tape's library opens libtt_agent.so by path and finds these functions by name.
//
// Every pointer in a struct is borrowed for the duration of the call; the link copies what it keeps. Strings are UTF-8 and end in
// NUL. Bytes are requested bytes, times are seconds. No function blocks on the network, throws, or touches gRPC in a forked child
// (there every call returns TT_LINK_FORKED). All functions are thread-safe.
#ifndef TIDETAPE_AGENT_LINK_TT_LINK_H_
#define TIDETAPE_AGENT_LINK_TT_LINK_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Grows when a struct or a function changes; tt_link_abi_version() must return it.
#define TT_LINK_ABI_VERSION 6

typedef struct tt_link tt_link;

typedef enum {
  TT_LINK_OK = 0,
  TT_LINK_INVALID_ARGUMENT = 1,
  TT_LINK_FORKED = 2,
  TT_LINK_CLOSED = 3,
  // The bounded queue was full; the oldest report was dropped in favour of this one.
  TT_LINK_DROPPED_OLDEST = 4,
  TT_LINK_INTERNAL = 5,
} tt_link_status;

typedef struct {
  const char* planner;  // "local", or "host:port" of a server; of several with commas between
  const char* job;
  const char* incarnation;
  int64_t incarnation_order;
  int32_t rank;
  int32_t world_size;
  const char* node;
  const char* torch_version;
  const char* device;
  const char* agent_version;
  int64_t memory_limit_bytes;  // 0: the least-memory plan; -1: keep everything
} tt_link_options;

typedef enum { TT_STORAGE_INTERMEDIATE = 1, TT_STORAGE_BLOCK_INPUT = 2, TT_STORAGE_PARAMETER = 3 } tt_storage_kind;

// tidetape.v1.Storage
typedef struct {
  int64_t bytes;
  uint64_t site;
  const char* label;
  uint8_t kind;  // tt_storage_kind
  uint8_t must_save;
  uint8_t must_recompute;
  uint8_t held_anyway;
  const int64_t* sampled_bytes;
  size_t num_samples;
} tt_storage;

// A list of indices.
typedef struct {
  const int32_t* data;
  size_t size;
} tt_indices;

// tidetape.v1.Op
typedef struct {
  const char* name;
  double cost_seconds;
  tt_indices reads;
  tt_indices writes;
  int64_t replay_workspace_bytes;
  uint8_t replayable;
} tt_op;

// tidetape.v1.BackwardEvent
typedef struct {
  tt_indices reads;
  tt_indices releases;
  int64_t gradient_live_bytes;
  int64_t start_live_bytes;
} tt_backward_event;

// tidetape.v1.Value
typedef struct {
  int32_t storage;
  int32_t version;
  double copy_seconds;
} tt_value;

// tidetape.v1.BlockTape
typedef struct {
  const char* name;
  uint64_t structure_hash;
  const tt_storage* storages;
  size_t num_storages;
  const tt_op* ops;
  size_t num_ops;
  tt_indices consumed;
  const tt_value* values;
  size_t num_values;
  const tt_backward_event* backward;
  size_t num_backward;
  const int64_t* forward_slack_bytes;  // one entry an op, or null
} tt_block_tape;

// tidetape.v1.BlockOption
typedef struct {
  int64_t saved_bytes;
  int64_t own_peak_bytes;
  double seconds;
  const char* label;
} tt_block_option;

// tidetape.v1.ProfiledBlock
typedef struct {
  const char* name;
  uint64_t structure_hash;
  int64_t forward_base_bytes;
  int64_t backward_base_bytes;
  int64_t backward_transient_bytes;
  // One entry a backward event of the tape, or null.
  const int64_t* gradient_live_bytes;
  const int64_t* start_live_bytes;
  size_t num_events;
  const uint64_t* held_inputs;  // sites
  size_t num_held_inputs;
  const tt_block_option* options;  // of a block that has no tape
  size_t num_options;
} tt_profiled_block;

// tidetape.v1.TapeCosts
typedef struct {
  uint64_t structure_hash;
  const double* cost_seconds;  // negative: not measured
  const int64_t* replay_workspace_bytes;
  size_t num_ops;
} tt_tape_costs;

// tidetape.v1.WindowRate
typedef struct {
  int64_t window_bytes;
  double bytes_per_second;
} tt_window_rate;

// tidetape.v1.LinkRates
typedef struct {
  double bytes_per_second;
  double latency_seconds;
  double put_seconds;
  const tt_window_rate* windows;
  size_t num_windows;
} tt_link_rates;

// tidetape.v1.PacedUnits
typedef struct {
  int64_t gathered_bytes;
  int32_t count;
} tt_paced_units;

// tidetape.v1.CollectiveReport
typedef struct {
  double gather_seconds;
  double reduce_seconds;
  int64_t covered_bytes;
  double covered_ratio;
  int64_t network_bytes;
  int64_t pacing_generation;
  int32_t ranks;
  int32_t nodes;
  const tt_link_rates* local;    // or null
  const tt_link_rates* network;  // or null
  const tt_paced_units* units;
  size_t num_units;
} tt_collective_report;

// tidetape.v1.StepReport
typedef struct {
  int64_t step;
  int64_t generation;
  double step_seconds;
  int64_t step_peak_bytes;
  int64_t saved_bytes;
  double replay_seconds;
  int64_t replayed_ops;
  int64_t demoted_ops;
  double agent_seconds;
  // Memory profile; has_profile = 0 outside measured steps.
  uint8_t has_profile;
  uint8_t steady;
  uint8_t early;  // instead of steady: of too few steps to plan by
  const tt_profiled_block* blocks;
  size_t num_blocks;
  int64_t head_peak_bytes;
  int64_t optimizer_peak_bytes;
  int64_t host_bytes_limit;
  double host_bytes_per_second;
  // The parts of the step in order of time: i + 1 where blocks[i] runs forward, -(i + 1) where it runs backward, 0 for a head; none
  // where all run forward and then backward in the opposite order.
  const int32_t* schedule;
  size_t num_schedule;
  // tidetape.v1.Headroom
  int64_t block_headroom_bytes;
  int64_t head_headroom_bytes;
  int64_t optimizer_headroom_bytes;
  const tt_tape_costs* costs;
  size_t num_costs;
  const int64_t* live_bytes;
  size_t num_live_bytes;
  const tt_collective_report* collectives;  // null where FSDP's collectives are its own
} tt_step_report;

typedef enum { TT_ACTION_SAVE = 1, TT_ACTION_REPLAY = 2, TT_ACTION_MOVE = 3 } tt_action;

typedef struct {
  uint64_t site;
  uint8_t action;  // tt_action
} tt_site_action;

// tidetape.v1.BlockPlan
typedef struct {
  const char* name;
  int32_t block;
  uint64_t structure_hash;
  const tt_site_action* sites;
  size_t num_sites;
  uint8_t default_action;  // tt_action
  int64_t saved_bytes;
  double replay_seconds;
  int64_t own_peak_bytes;
  int32_t num_saved;
  int32_t num_replayed;
  int32_t num_moved;
  int64_t moved_bytes;
  int64_t moved_input_bytes;  // of them, those of block inputs
  int32_t option;             // position among the block's options; -1 where it has a tape
} tt_block_plan;

typedef enum { TT_GATHER_RECURSIVE_DOUBLING = 1, TT_GATHER_RING = 2 } tt_gather_algorithm;

// tidetape.v1.PacingPlan
typedef struct {
  uint8_t algorithm;  // tt_gather_algorithm
  uint8_t slot_reuse;
  int64_t chunk_bytes;
  int32_t puts_in_flight;
  double chunk_gap_seconds;
  int32_t prefetch_depth;
  int32_t staging_slots;
  double gather_seconds;
} tt_pacing_plan;

// tidetape.v1.Plan. Owned by the link; released with tt_link_release_plan.
typedef struct {
  int64_t generation;
  const tt_block_plan* blocks;
  size_t num_blocks;
  int64_t memory_limit_bytes;
  int64_t step_peak_bytes;
  int64_t headroom_bytes;
  double replay_seconds;
  int64_t saved_bytes;
  int64_t moved_bytes;
  double move_seconds;
  double lower_bound_seconds;
  double gap_ratio;
  int64_t least_peak_bytes;
  uint8_t feasible;
  const char* least_peak_holder;  // for people, as in "backward of model.layers.7"
  const char* peak_holder;
  const char* reason;
  const char* etag;
  uint8_t has_pacing;  // else the collectives stay as they are
  tt_pacing_plan pacing;
} tt_plan;

typedef struct {
  uint8_t connected;  // for "local": 1
  int64_t reports_sent;
  int64_t reports_dropped;
  int64_t reconnects;
  int64_t plans_received;
  const char* last_error;  // valid until the next call of tt_link_state on this thread; empty where all is well
} tt_link_state_info;

int32_t tt_link_abi_version(void);

// Starts the link's own thread and returns; connecting, and connecting again, happens there. Returns null and fills `error` where
// an option is bad. A planner that cannot be reached is no error.
tt_link* tt_link_open(const tt_link_options* options, char* error, size_t error_size);

// Waits at most `timeout_seconds` for queued messages to leave, then stops the thread and frees the link. Null is ignored.
void tt_link_close(tt_link* link, double timeout_seconds);

// Sent once per structure hash and connection; kept (serialized) for the next connection.
tt_link_status tt_link_put_tape(tt_link* link, const tt_block_tape* tape);

// Drops the oldest queued report when the queue is full.
tt_link_status tt_link_report_step(tt_link* link, const tt_step_report* report);

// The ranks switched to `generation` at `step`.
tt_link_status tt_link_plan_activated(tt_link* link, int64_t generation, int64_t step);

// The newest candidate plan with a generation above `above_generation`, or null. Release it with tt_link_release_plan.
// Cheap where there is none (one atomic load).
const tt_plan* tt_link_take_plan(tt_link* link, int64_t above_generation);
void tt_link_release_plan(const tt_plan* plan);

// Tells the planner of another limit; a new plan follows.
tt_link_status tt_link_set_memory_limit(tt_link* link, int64_t memory_limit_bytes);

tt_link_status tt_link_state(tt_link* link, tt_link_state_info* info);

#ifdef __cplusplus
}
#endif

#endif  // TIDETAPE_AGENT_LINK_TT_LINK_H_
