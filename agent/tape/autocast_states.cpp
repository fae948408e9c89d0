#include "agent/tape/autocast_states.h"

#include <ATen/autocast_mode.h>

#include <algorithm>
#include <limits>

namespace tidetape::agent {

AutocastStates::Dtypes AutocastStates::Dtypes::OfThisThread() {
  return {at::autocast::get_autocast_dtype(c10::DeviceType::CPU), at::autocast::get_autocast_dtype(c10::DeviceType::CUDA)};
}

void AutocastStates::Dtypes::SetForThisThread() const {
  at::autocast::set_autocast_dtype(c10::DeviceType::CPU, cpu);
  at::autocast::set_autocast_dtype(c10::DeviceType::CUDA, cuda);
}

std::optional<uint8_t> AutocastStates::Note() {
  const uint64_t excluded = c10::impl::tls_local_dispatch_key_set().excluded_.raw_repr();
  const uint64_t casting = c10::autocast_dispatch_keyset.raw_repr() & ~excluded;
  if (casting == 0) return 0;
  const State state = {casting, Dtypes::OfThisThread()};
  auto found = std::find(states_.begin(), states_.end(), state);
  if (found == states_.end()) {
    if (states_.size() == std::numeric_limits<uint8_t>::max()) return std::nullopt;
    found = states_.insert(states_.end(), state);
  }
  return static_cast<uint8_t>(found - states_.begin() + 1);
}

AutocastStates::Scope::Scope(const AutocastStates& states, uint8_t number)
    : keys_before_(c10::impl::tls_local_dispatch_key_set()), dtypes_before_(Dtypes::OfThisThread()) {
  const State& state = states.states_[number - 1];
  c10::impl::LocalDispatchKeySet keys = keys_before_;
  keys.excluded_ = c10::DispatchKeySet(c10::DispatchKeySet::RAW, keys.excluded_.raw_repr() & ~state.casting);
  c10::impl::_force_tls_local_dispatch_key_set(keys);
  state.dtypes.SetForThisThread();
}

AutocastStates::Scope::~Scope() {
  dtypes_before_.SetForThisThread();
  c10::impl::_force_tls_local_dispatch_key_set(keys_before_);
}

}  // namespace tidetape::agent
