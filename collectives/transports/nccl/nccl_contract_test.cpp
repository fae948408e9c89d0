// The contract over NCCL's stand-in: one node with a multicast address, and two nodes without. An odd number of ranks is one a
// node.
#include "collectives/testing/nccl_standin/standin_library.h"
#include "collectives/testing/transport_contract.h"
#include "collectives/transports/nccl/nccl_transport.h"
#include "collectives/transports/shm/shm_transport.h"

namespace tidetape::collectives {
namespace {

TransportUnderTest WithNodesOf(const std::string& name, int ranks_per_node, bool multimem) {
  TransportUnderTest transport;
  transport.name = name;
  transport.join = [=](const GroupOptions& options, Store& store) -> absl::StatusOr<std::unique_ptr<Transport>> {
    StandinOptions standin;
    standin.ranks_per_node = options.size % ranks_per_node == 0 ? ranks_per_node : 1;
    standin.multimem = multimem;
    const StandinLibrary library(standin);
    NcclOptions nccl;
    nccl.library = StandinLibrary::Path();
    // Smaller than the contract's largest puts.
    nccl.outbox_bytes = 256 << 10;
    nccl.puts_in_flight = 16;
    return NcclTransport::Join(store, options, nccl, library.device(),
                               [](Store& s, const GroupOptions& o) { return ShmTransport::Join(s, o, {}); });
  };
  return transport;
}

INSTANTIATE_TEST_SUITE_P(Nccl, TransportContractTest,
                         ::testing::Values(WithNodesOf("one_node", 4, true), WithNodesOf("two_nodes", 2, false)),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tidetape::collectives
