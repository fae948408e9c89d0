// The audit of one op: run it a second time on the same inputs and compare bit for bit.
//
// Whatever makes an op irreproducible (hidden state, an untagged random source, a race), it shows here, and its outputs are kept
// from then on. One op's output more is alive during an audited op.
#ifndef TIDETAPE_AGENT_TAPE_AUDIT_H_
#define TIDETAPE_AGENT_TAPE_AUDIT_H_

#include <ATen/core/stack.h>

#include <memory>

#include "agent/tape/tape.h"

namespace tidetape::agent {

class Audit {
 public:
  // Called before the op runs: takes its arguments from the end of `stack`, and copies those that it will overwrite. Null where
  // there is nothing to compare. The caller keeps the interception off.
  static std::unique_ptr<Audit> Prepare(const Tape& tape, const OpRecord& op, const torch::jit::Stack& stack);

  // Called after it ran: `stack` ends with its returns.
  bool Agrees(const torch::jit::Stack& stack);

 private:
  Audit(const Tape& tape, const OpRecord& op) : tape_(tape), op_(op) {}

  const Tape& tape_;
  const OpRecord op_;
  torch::jit::Stack arguments_;
  std::vector<at::Tensor> overwritten_;  // the arguments that the first run overwrites
  std::vector<at::Tensor> copies_;       // and the copies that the second run overwrites instead
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_TAPE_AUDIT_H_
