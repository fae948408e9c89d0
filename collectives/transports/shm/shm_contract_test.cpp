#include "collectives/testing/transport_contract.h"
#include "collectives/transports/shm/shm_transport.h"

namespace tidetape::collectives {
namespace {

absl::StatusOr<std::unique_ptr<Transport>> Join(const GroupOptions& options, Store& store) {
  return ShmTransport::Join(store, options, {});
}

absl::StatusOr<std::unique_ptr<Transport>> JoinSpinning(const GroupOptions& options, Store& store) {
  return ShmTransport::Join(store, options, {.spin = absl::Milliseconds(1)});
}

INSTANTIATE_TEST_SUITE_P(Shm, TransportContractTest,
                         ::testing::Values(TransportUnderTest{"shm", Join}, TransportUnderTest{"shm_spinning", JoinSpinning},
                                           TransportUnderTest{"shm_shared_region", Join, {8192, 40'960}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tidetape::collectives
