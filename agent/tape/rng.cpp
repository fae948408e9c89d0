#include "agent/tape/rng.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <cstring>
#include <mutex>

namespace tidetape::agent {
namespace {

at::Tensor StateOf(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void SetState(at::Generator& generator, const at::Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

bool Equal(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

}  // namespace

int32_t RngStates::Note(const at::Generator& generator) {
  at::Tensor state = StateOf(generator);
  for (auto known = states_.rbegin(); known != states_.rend(); ++known) {
    if (known->generator == generator) {
      if (Equal(known->state, state)) return static_cast<int32_t>(states_.rend() - known) - 1;
      break;
    }
  }
  states_.push_back({generator, std::move(state)});
  return static_cast<int32_t>(states_.size()) - 1;
}

RngStates::Scope::Scope(const RngStates& states, int32_t number) : generator_(states.states_[number].generator) {
  before_ = StateOf(generator_);
  SetState(generator_, states.states_[number].state);
}

RngStates::Scope::~Scope() { SetState(generator_, before_); }

at::Generator DefaultGenerator(c10::Device device) { return at::globalContext().defaultGenerator(device); }

}  // namespace tidetape::agent
