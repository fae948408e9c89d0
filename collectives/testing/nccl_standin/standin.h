// A library in NCCL's place, for tests without a GPU: the calls of nccl_abi.h, and only those, over memory that the processes of
// one host share. Streams are HostStreams. Built as a library of its own, so that the transport finds it as it finds NCCL.
//
// It is stricter than NCCL: a put's source must lie in the window; no two threads may be in calls of one communicator at once; and
// at most 256 puts to one peer may be on their way.
//
// These functions are for tests to look up with dlsym.
#ifndef TIDETAPE_COLLECTIVES_TESTING_NCCL_STANDIN_STANDIN_H_
#define TIDETAPE_COLLECTIVES_TESTING_NCCL_STANDIN_STANDIN_H_

#include <cstddef>
#include <cstdint>

namespace tidetape::collectives {

// What fails in this process.
enum class StandinFailure : int32_t {
  kNone,
  kOldVersion,  // the library says that it is 2.30.7
  kNoMemory,    // ncclMemAlloc fails
  kNullWindow,  // ncclCommWindowRegister succeeds without a window
  kAsyncError,  // after `after_puts` puts, ncclCommGetAsyncError says ncclRemoteError
  kAborted,     // after `after_puts` puts, the communicator is aborted behind the caller's back
};

struct StandinOptions {
  int32_t ranks_per_node = 8;  // that reach each other's memory
  bool multimem = true;        // there is a multicast address
  StandinFailure failure = StandinFailure::kNone;
  int32_t after_puts = 0;
};

}  // namespace tidetape::collectives

extern "C" {
// Before the first call of NCCL.
void tt_standin_configure(const tidetape::collectives::StandinOptions* options);
// All calls of this process so far but polls, one a line, as in "ncclSignal peer=1 signal=3". Valid until the next call of this
// function.
const char* tt_standin_calls();
// Copies to wherever NCCL's pointers point, the multicast address included. For HostDevice.
void tt_standin_copy(void* to, const void* from, size_t bytes);
}

#endif  // TIDETAPE_COLLECTIVES_TESTING_NCCL_STANDIN_STANDIN_H_
