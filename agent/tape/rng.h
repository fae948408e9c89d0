// Generator states of random ops, so that a replay draws the same numbers.
#ifndef TIDETAPE_AGENT_TAPE_RNG_H_
#define TIDETAPE_AGENT_TAPE_RNG_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace tidetape::agent {

// The states of one recording. Not thread-safe.
//
// A CPU state is a Mersenne twister (MT19937, Matsumoto and Nishimura 1998) of 2.5 KB. It is kept once for many ops: the state of a
// later op is the kept one some twists further on, at another place in it. Other generators' states are kept whole.
class RngStates {
 public:
  // Notes the state that `generator` is in, and returns its number. Equal consecutive states have one number.
  int32_t Note(at::Generator generator);

  // Puts the generator of state `number` into that state for the lifetime of the scope, and back afterwards.
  class Scope {
   public:
    Scope(const RngStates& states, int32_t number);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    struct CpuState;
    at::Generator generator_;
    at::Tensor before_;
    std::unique_ptr<CpuState> cpu_before_;
  };

 private:
  struct Twister;
  struct State {
    at::Generator generator;
    at::Tensor whole;                        // where the generator is no twister
    std::shared_ptr<const Twister> twister;  // else: this one,
    int32_t twists = 0;                      // so many twists further on,
    int32_t left = 0;                        // at this place in it,
    uint32_t next = 0;
    std::optional<float> normal_float;  // with this half of a pair of normal samples not yet handed out
    std::optional<double> normal_double;
  };

  int32_t NoteTwister(const at::Generator& generator, const State* last);
  static void Restore(const State& state);

  std::vector<State> states_;
};

// The generator that an op draws from on `device` when it was given none.
at::Generator DefaultGenerator(c10::Device device);

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_TAPE_RNG_H_
