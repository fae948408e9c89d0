// What the tape needs to know of an operator, looked up once.
#ifndef TIDETAPE_AGENT_TAPE_OP_FACTS_H_
#define TIDETAPE_AGENT_TAPE_OP_FACTS_H_

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace tidetape::agent {

struct OpFacts {
  explicit OpFacts(const c10::OperatorHandle& op) : handle(op) {}
  // False where the op was defined anew since, with another schema, as happens in notebooks.
  bool Describes(const c10::OperatorHandle& op) const { return schema == nullptr || *schema == op.schema(); }

  c10::OperatorHandle handle;
  // Of ops that torch did not define, and may be defined anew. The name keeps the handle from being used for another op.
  std::unique_ptr<const c10::FunctionSchema> schema;
  std::optional<c10::RegistrationHandleRAII> held_name;
  std::string name;  // "aten::add.Tensor"
  uint64_t name_hash = 0;
  uint32_t num_arguments = 0;
  uint32_t num_returns = 0;
  uint64_t written_arguments = 0;  // bit i: the op writes argument i (of the first 64)
  // Running statistics, bit i for argument i: what the op returns does not depend on them while it trains (argument 5), and updates
  // them.
  uint64_t statistics_arguments = 0;
  bool pure_view = false;      // every return aliases an argument and nothing is written
  bool random = false;         // draws from a generator
  bool data_sized = false;     // the sizes that it returns depend on values, as of nonzero
  bool uninitialized = false;  // allocates and fills nothing
  bool replayable = true;      // false for collectives and for ops whose schema hides what they do

  // Learned from the first executions of ops that torch did not define, see op_probe.h.
  mutable std::atomic<int32_t> probes_left{0};
  mutable std::atomic<uint64_t> hidden_writes{0};  // bits of arguments
  mutable std::atomic<bool> draws{false};
};

// The reference stays valid, also where the op is defined anew. Thread-safe.
const OpFacts& FactsOf(const c10::OperatorHandle& op);

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_TAPE_OP_FACTS_H_
