// torch.distributed's store, seen through Python, as the collectives' rendezvous wants it.
#ifndef TIDETAPE_AGENT_FSDP_PYTHON_STORE_H_
#define TIDETAPE_AGENT_FSDP_PYTHON_STORE_H_

#include <pybind11/pybind11.h>

#include <string>

#include "absl/time/clock.h"
#include "collectives/transports/rendezvous/store.h"

namespace tidetape::agent {

// `set(key: str, value: bytes)` and `wait(key: str, seconds: float) -> bytes | None`, None where nobody sets the key in time. Takes
// the GIL for each call, so callers may have let go of it. An exception of either is UNAVAILABLE.
class PythonStore final : public collectives::Store {
 public:
  PythonStore(pybind11::function set, pybind11::function wait) : set_(std::move(set)), wait_(std::move(wait)) {}

  absl::Status Set(absl::string_view key, absl::string_view value) override {
    const pybind11::gil_scoped_acquire gil;
    try {
      set_(std::string(key), pybind11::bytes(value.data(), value.size()));
      return absl::OkStatus();
    } catch (const pybind11::error_already_set& error) {
      return absl::UnavailableError(error.what());
    }
  }

  absl::StatusOr<std::string> Wait(absl::string_view key, absl::Time deadline) override {
    const pybind11::gil_scoped_acquire gil;
    try {
      const pybind11::object value = wait_(std::string(key), absl::ToDoubleSeconds(deadline - absl::Now()));
      if (value.is_none()) return absl::DeadlineExceededError("nobody has set " + std::string(key));
      return value.cast<std::string>();
    } catch (const pybind11::error_already_set& error) {
      return absl::UnavailableError(error.what());
    }
  }

 private:
  const pybind11::function set_, wait_;
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_FSDP_PYTHON_STORE_H_
