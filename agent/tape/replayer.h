// Replay: runs the missing producers of a value, and nothing else.
#ifndef TIDETAPE_AGENT_TAPE_REPLAYER_H_
#define TIDETAPE_AGENT_TAPE_REPLAYER_H_

#include <ATen/core/Tensor.h>

#include <functional>

#include "agent/tape/tape.h"

namespace tidetape::agent {

// The storage of a consumed value in its last version: kept, or replayed before, or replayed now from the kept and outside ones.
// Runs no autograd, no Python and no autocast, on the calling thread, and frees each intermediate after its last reader. The caller
// holds tape.mutex. Throws c10::Error, naming block and op, where an outside storage is gone or has changed, or an op fails.
StorageRef Materialise(Tape& tape, int32_t storage);

// The same while the tape is still being recorded: a block that takes gradients in its own forward. `original` is the storage
// itself if it is still alive, else null. Leaves the tape as it was.
StorageRef MaterialiseInForward(Tape& tape, int32_t storage, StorageRef original);

// Runs all ops that a replay of the prepared tape needs, in program order; calls `after_op` with each op's number when its outputs
// are there. Throws what an op throws: that op is then the first needed one that is not done.
void ReplayAll(Tape& tape, const std::function<void(int32_t op)>& after_op);

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_TAPE_REPLAYER_H_
