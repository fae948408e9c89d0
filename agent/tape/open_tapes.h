// The tapes whose backward is still to come, and the writes that would spoil what they replay from.
//
// A replay reads the block's inputs, buffers and kept values as they were in forward. Whatever writes to one of them before the
// block's backward (a later block, a second call of the same one, the model between its blocks) is seen before it writes, and the
// tape gets a copy. Plain training needs none where autograd saved nothing of that value, and refuses where it did: versions tell.
#ifndef TIDETAPE_AGENT_TAPE_OPEN_TAPES_H_
#define TIDETAPE_AGENT_TAPE_OPEN_TAPES_H_

#include <ATen/core/stack.h>

#include "agent/tape/op_facts.h"
#include "agent/tape/tape.h"

namespace tidetape::agent::open_tapes {

// All functions are thread-safe.

// A recording has ended, and its replay will read something, or its backward what was moved to host memory.
void Add(const TapePtr& tape);
// The tape, if it is open, will read this storage as well.
void Watch(const Tape& tape, const c10::StorageImpl& storage);
// Its backward is through, or it was abandoned.
void Remove(const Tape& tape);
bool Any();

// An op is about to write to `storage`: tapes that will replay from it get a copy. The caller holds no tape's mutex.
void BeforeWrite(c10::StorageImpl& storage);
// The same for all tensors that the op will write, where no recording looks at it.
void BeforeOp(const OpFacts& facts, const torch::jit::Stack& stack);

}  // namespace tidetape::agent::open_tapes

#endif  // TIDETAPE_AGENT_TAPE_OPEN_TAPES_H_
