// Compiled only where nccl.h is (see docs/gpu.md): that nccl_abi.h says the same.
#include <nccl.h>
#include <nccl_device/host.h>

#include <cstddef>
#include <type_traits>

#include "collectives/transports/nccl/nccl_abi.h"

namespace tidetape::collectives::nccl {
namespace {

static_assert(NCCL_VERSION_CODE >= kLeastVersion, "this nccl.h is too old to compare with");
static_assert(ncclSuccess == kSuccess && ncclSystemError == kSystemError && ncclInternalError == kInternalError &&
              ncclInvalidArgument == kInvalidArgument && ncclInvalidUsage == kInvalidUsage && ncclRemoteError == kRemoteError &&
              ncclInProgress == kInProgress);
static_assert(ncclInt8 == kInt8 && NCCL_WIN_COLL_SYMMETRIC == kWinCollSymmetric && NCCL_CTA_POLICY_ZERO == kCtaPolicyZero);
static_assert(NCCL_API_MAGIC == kMagic && NCCL_CONFIG_UNDEF_INT == kUndefined && NCCL_VERSION(2, 31, 2) == kLeastVersion);
static_assert(sizeof(ncclUniqueId) == sizeof(UniqueId) && sizeof(ncclResult_t) == sizeof(Result));
static_assert(sizeof(ncclTeam_t) == sizeof(Team) && offsetof(ncclTeam_t, nRanks) == offsetof(Team, ranks) &&
              offsetof(ncclTeam_t, rank) == offsetof(Team, rank) && offsetof(ncclTeam_t, stride) == offsetof(Team, stride));
static_assert(sizeof(ncclWaitSignalDesc_t) == sizeof(WaitSignalDesc) &&
              offsetof(ncclWaitSignalDesc_t, opCnt) == offsetof(WaitSignalDesc, count) &&
              offsetof(ncclWaitSignalDesc_t, peer) == offsetof(WaitSignalDesc, peer) &&
              offsetof(ncclWaitSignalDesc_t, sigIdx) == offsetof(WaitSignalDesc, signal) &&
              offsetof(ncclWaitSignalDesc_t, ctx) == offsetof(WaitSignalDesc, context));

#define TT_SAME_FIELD(theirs, ours) static_assert(offsetof(ncclConfig_t, theirs) == offsetof(Config, ours))
TT_SAME_FIELD(size, size);
TT_SAME_FIELD(magic, magic);
TT_SAME_FIELD(version, version);
TT_SAME_FIELD(blocking, blocking);
TT_SAME_FIELD(netName, net_name);
TT_SAME_FIELD(commName, comm_name);
TT_SAME_FIELD(CTAPolicy, cta_policy);
TT_SAME_FIELD(numRmaCtx, num_rma_ctx);
TT_SAME_FIELD(numRmaSig, num_rma_sig);
#undef TT_SAME_FIELD

// A type as it is passed: pointers to anything are alike, and so are enumerations and int.
template <typename T>
struct Passed {
  using type = std::conditional_t<std::is_pointer_v<T>, void*, std::conditional_t<std::is_enum_v<T>, int, T>>;
};
template <>
struct Passed<ncclUniqueId> {
  using type = UniqueId;
};
template <>
struct Passed<ncclTeam_t> {
  using type = Team;
};
template <typename T>
struct Signature;
template <typename R, typename... Parameters>
struct Signature<R (*)(Parameters...)> {
  using type = typename Passed<R>::type (*)(typename Passed<Parameters>::type...);
};

#define TT_NCCL_FUNCTION(result, name, parameters)                                                                      \
  static_assert(std::is_same_v<Signature<decltype(&nccl##name)>::type, Signature<decltype(NcclFunctions::name)>::type>, \
                #name " has other parameters in nccl.h");
TT_NCCL_FUNCTIONS(TT_NCCL_FUNCTION)
#undef TT_NCCL_FUNCTION

}  // namespace
}  // namespace tidetape::collectives::nccl
