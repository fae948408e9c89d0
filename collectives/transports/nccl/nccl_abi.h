// The part of NCCL's C interface that is used here, declared anew, so that nothing needs NCCL or CUDA to build: the library is
// found when it is asked for. nccl_abi_check.cpp compares these declarations with nccl.h where there is one.
//
// A member of NcclFunctions has the name of NCCL's function without "nccl".
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_NCCL_ABI_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_NCCL_ABI_H_

#include <climits>
#include <cstddef>

namespace tidetape::collectives::nccl {

using Result = int;  // ncclResult_t
inline constexpr Result kSuccess = 0;
inline constexpr Result kSystemError = 2;
inline constexpr Result kInternalError = 3;
inline constexpr Result kInvalidArgument = 4;
inline constexpr Result kInvalidUsage = 5;
inline constexpr Result kRemoteError = 6;
inline constexpr Result kInProgress = 7;

using Comm = struct CommOpaque*;
using Window = struct WindowOpaque*;
using Stream = void*;  // cudaStream_t

struct UniqueId {
  char internal[128];
};

inline constexpr int kInt8 = 0;                 // ncclInt8
inline constexpr int kWinCollSymmetric = 1;     // NCCL_WIN_COLL_SYMMETRIC
inline constexpr int kCtaPolicyZero = 2;        // NCCL_CTA_POLICY_ZERO: no SM is used
inline constexpr unsigned kMagic = 0xcafebeef;  // NCCL_API_MAGIC
inline constexpr int kUndefined = INT_MIN;      // NCCL_CONFIG_UNDEF_INT

// NCCL_VERSION(2, 31, 2): signal indices other than 0, and numRmaSig.
inline constexpr int kLeastVersion = 23102;

// ncclConfig_t up to the last field that is used. NCCL takes configurations that are shorter than its own: `size` says how long.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = kMagic;
  unsigned version = kLeastVersion;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  int traffic_class = kUndefined;
  const char* comm_name = nullptr;
  int collnet_enable = kUndefined;
  int cta_policy = kUndefined;
  int shrink_share = kUndefined;
  int nvls_ctas = kUndefined;
  int channels_per_net_peer = kUndefined;
  int nvlink_centric_sched = kUndefined;
  int graph_usage_mode = kUndefined;
  int num_rma_ctx = kUndefined;
  int max_p2p_peers = kUndefined;
  int graph_stream_ordering = kUndefined;
  int launch_order_implicit = kUndefined;
  int num_rma_sig = kUndefined;
};

struct Team {
  int ranks, rank, stride;
};

struct WaitSignalDesc {
  int count, peer, signal, context;
};

}  // namespace tidetape::collectives::nccl

// TT_NCCL_FUNCTION(result, name without "nccl", parameters), for every function that is used.
#define TT_NCCL_FUNCTIONS(TT_NCCL_FUNCTION)                                                                              \
  TT_NCCL_FUNCTION(Result, GetVersion, (int*))                                                                           \
  TT_NCCL_FUNCTION(const char*, GetErrorString, (Result))                                                                \
  TT_NCCL_FUNCTION(const char*, GetLastError, (Comm))                                                                    \
  TT_NCCL_FUNCTION(Result, GetUniqueId, (UniqueId*))                                                                     \
  TT_NCCL_FUNCTION(Result, CommInitRankConfig, (Comm*, int, UniqueId, int, Config*))                                     \
  TT_NCCL_FUNCTION(Result, CommGetAsyncError, (Comm, Result*))                                                           \
  TT_NCCL_FUNCTION(Result, CommAbort, (Comm))                                                                            \
  TT_NCCL_FUNCTION(Result, MemAlloc, (void**, size_t))                                                                   \
  TT_NCCL_FUNCTION(Result, MemFree, (void*))                                                                             \
  TT_NCCL_FUNCTION(Result, CommWindowRegister, (Comm, void*, size_t, Window*, int))                                      \
  TT_NCCL_FUNCTION(Team, TeamLsa, (Comm))                                                                                \
  TT_NCCL_FUNCTION(Result, GetLsaDevicePointer, (Window, size_t, int, void**))                                           \
  TT_NCCL_FUNCTION(Result, GetLsaMultimemDevicePointer, (Window, size_t, void**))                                        \
  TT_NCCL_FUNCTION(Result, PutSignal, (const void*, size_t, int, int, Window, size_t, int, int, unsigned, Comm, Stream)) \
  TT_NCCL_FUNCTION(Result, Signal, (int, int, int, unsigned, Comm, Stream))                                              \
  TT_NCCL_FUNCTION(Result, WaitSignal, (int, WaitSignalDesc*, Comm, Stream))

namespace tidetape::collectives::nccl {

#define TT_NCCL_FUNCTION(result, name, parameters) result(*name) parameters = nullptr;
struct NcclFunctions {
  TT_NCCL_FUNCTIONS(TT_NCCL_FUNCTION)
};
#undef TT_NCCL_FUNCTION

}  // namespace tidetape::collectives::nccl

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_NCCL_ABI_H_
