// Runs the own rank's schedule over a transport.
#ifndef TIDETAPE_COLLECTIVES_EXECUTOR_H_
#define TIDETAPE_COLLECTIVES_EXECUTOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "collectives/schedule.h"
#include "collectives/transport.h"

namespace tidetape::collectives {

// Memory of a reduce-scatter outside the arena, by parameter of the unit.
struct ReduceBuffers {
  struct Output {
    absl::Span<float> shard;  // this rank's shard of the gradient, contiguous, unpadded
    bool accumulate = false;  // add to what is there, instead of overwriting it
  };
  // Whole gradients in the schedule's dtype, contiguous, unpadded. Empty where this rank has none: it takes part with zeros.
  std::vector<absl::Span<const std::byte>> gradients;
  std::vector<Output> outputs;
};

struct ExecutorOptions {
  // Of each wait and flush. A rank that gets nothing for so long gives up, so all ranks do within the sum of what they wait for.
  absl::Duration wait_limit = absl::Minutes(5);
  // Called after each wait of a schedule, if set; its error ends the run as the wait's own would.
  std::function<absl::Status(int32_t peer, int32_t signal)> after_wait = nullptr;
};

// Not safe for use from several threads at once; schedules that overlap in time need an executor and a thread each. The transport
// must outlive it.
//
// An error names the collective, unit, slot, training step, rank, step of the schedule with peer, signal and slot, and says what
// the transport said, whose code it has. What was received by then stays where it is: the unit's slot is in no defined state, and
// the group must be made anew (transport.h). InvalidArgument: a buffer is smaller than the schedule needs.
class Executor {
 public:
  Executor(Transport& transport, ExecutorOptions options) : transport_(transport), options_(std::move(options)) {}

  // One phase, or all. `training_step` is for errors.
  absl::Status RunPhase(const Schedule& schedule, int32_t phase, const ReduceBuffers& buffers, int64_t training_step);
  absl::Status Run(const Schedule& schedule, const ReduceBuffers& buffers, int64_t training_step);
  // Steps [begin, end) of the phase: a caller that has something else to do may stop before a wait, and go on later.
  absl::Status RunSteps(const Schedule& schedule, int32_t phase, int32_t begin, int32_t end, const ReduceBuffers& buffers,
                        int64_t training_step);

 private:
  absl::Status RunStep(const Schedule& schedule, const Step& step, const ReduceBuffers& buffers);
  absl::Status Compute(const Schedule& schedule, const Step& step, const ReduceBuffers& buffers);
  // The memory of a place; InvalidArgument where it is too small.
  absl::Status Source(const Place& place, int64_t bytes, const ReduceBuffers& buffers, absl::Span<const std::byte>* source);
  absl::Status Destination(const Step& step, int64_t bytes, const ReduceBuffers& buffers, absl::Span<std::byte>* destination);
  void KeepGap(absl::Duration gap);

  Transport& transport_;
  ExecutorOptions options_;
  std::vector<const std::byte*> sum_sources_;
  std::vector<std::byte> zeros_;  // stands in for gradients that are not there
  absl::Time next_paced_ = absl::InfinitePast();
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_EXECUTOR_H_
