// Watches the first executions of an op that torch did not define: its schema may hide what it writes, and its tags that it draws.
//
// What is seen is remembered in the op's facts: an op that hides a write is never replayed, one that draws is replayed from its
// state of the generator.
#ifndef TIDETAPE_AGENT_TAPE_OP_PROBE_H_
#define TIDETAPE_AGENT_TAPE_OP_PROBE_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <utility>
#include <vector>

#include "agent/tape/op_facts.h"
#include "agent/tape/tape.h"

namespace tidetape::agent {

class OpProbe {
 public:
  // Before the op runs; copies its tensor arguments, which begin at `base` of the stack.
  OpProbe(const OpFacts& facts, const torch::jit::Stack& stack, size_t base);

  struct HiddenWrite {
    StorageRef storage;
    StorageRef before;  // a copy of what it held
  };
  // After it ran: what it wrote and does not say. Notes that in the facts.
  std::vector<HiddenWrite> FindHiddenWrites() const;
  // Whether the default generator of the CPU was moved. Notes that in the facts.
  bool Drew() const;

 private:
  struct Watched {
    uint32_t argument = 0;
    at::Tensor tensor;
    StorageRef before;
  };
  void Watch(uint32_t argument, const c10::IValue& given);

  const OpFacts& facts_;
  std::vector<Watched> watched_;
  const at::Tensor generator_state_;
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_TAPE_OP_PROBE_H_
