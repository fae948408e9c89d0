// Refuses calls that a transport cannot carry out, and names calls in errors.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_COMMON_CALL_CHECK_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_COMMON_CALL_CHECK_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tidetape::collectives {

// What bounds the arguments of a call.
struct CallBounds {
  int size = 0;
  int signals = 0;
  uint64_t arena_bytes = 0;
};

// "PutSignal(rank 3, offset 4096, 128 bytes, signal 7)"
std::string PutName(int peer, uint64_t offset, uint64_t bytes, int signal);
// "WaitSignal(rank 3, signal 7)", for calls without bytes.
std::string SignalName(absl::string_view call, int peer, int signal);

// INVALID_ARGUMENT or OUT_OF_RANGE where the call cannot be carried out.
absl::Status CheckPut(const CallBounds& bounds, int peer, uint64_t offset, uint64_t bytes, int signal);
absl::Status CheckSignal(const CallBounds& bounds, absl::string_view call, int peer, int signal);

// `status` with the call's name in front; OK stays OK.
absl::Status InCall(const absl::Status& status, absl::string_view call);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_COMMON_CALL_CHECK_H_
