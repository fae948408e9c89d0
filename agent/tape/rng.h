// Generator states of random ops, so that a replay draws the same numbers.
#ifndef TIDETAPE_AGENT_TAPE_RNG_H_
#define TIDETAPE_AGENT_TAPE_RNG_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace tidetape::agent {

// The states of one recording. Equal consecutive states are kept once (a CPU state has 5,056 bytes). Not thread-safe.
class RngStates {
 public:
  // Notes the state that `generator` is in, and returns its number.
  int32_t Note(const at::Generator& generator);

  // Puts the generator of state `number` into that state for the lifetime of the scope, and back afterwards.
  class Scope {
   public:
    Scope(const RngStates& states, int32_t number);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    at::Generator generator_;
    at::Tensor before_;
  };

 private:
  struct State {
    at::Generator generator;
    at::Tensor state;
  };
  std::vector<State> states_;
};

// The generator that an op draws from on `device` when it was given none.
at::Generator DefaultGenerator(c10::Device device);

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_TAPE_RNG_H_
