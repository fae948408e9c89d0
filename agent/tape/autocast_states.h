// Under which autocast ops ran. Autocast has cast an op's own arguments before the tape sees it; but the kernels of some ops
// dispatch other ops, which autocast casts for itself (aten::linalg_matrix_exp multiplies matrices, for one).
#ifndef TIDETAPE_AGENT_TAPE_AUTOCAST_STATES_H_
#define TIDETAPE_AGENT_TAPE_AUTOCAST_STATES_H_

#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace tidetape::agent {

// The states of one recording. Not thread-safe.
class AutocastStates {
  // What autocast casts to.
  struct Dtypes {
    static Dtypes OfThisThread();
    void SetForThisThread() const;
    bool operator==(const Dtypes&) const = default;

    c10::ScalarType cpu, cuda;
  };

 public:
  // The number of this thread's state: 0 where nothing would be cast, as within autocast's own kernels. None where there are more
  // states than numbers.
  std::optional<uint8_t> Note();

  // Puts this thread into state `number`, which is not 0, for the lifetime of the scope, and back afterwards.
  class Scope {
   public:
    Scope(const AutocastStates& states, uint8_t number);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const c10::impl::LocalDispatchKeySet keys_before_;
    const Dtypes dtypes_before_;
  };

 private:
  struct State {
    bool operator==(const State&) const = default;

    uint64_t casting = 0;  // raw bits of the autocast keys in force
    Dtypes dtypes;
  };

  std::vector<State> states_;  // state n at n - 1
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_TAPE_AUTOCAST_STATES_H_
