#include "collectives/testing/transport_contract.h"
#include "collectives/transports/tcp/tcp_transport.h"

namespace tidetape::collectives {
namespace {

TransportUnderTest Tcp(const std::string& name, const TcpOptions& tcp) {
  return {name,
          [tcp](const GroupOptions& options, Store& store) -> absl::StatusOr<std::unique_ptr<Transport>> {
            return TcpTransport::Join(store, options, tcp);
          },
          {}};
}

INSTANTIATE_TEST_SUITE_P(
    Tcp, TransportContractTest,
    ::testing::Values(Tcp("tcp", {.address = "127.0.0.1"}), Tcp("tcp6", {.address = "::1"}),
                      // Small chunks, a short queue, and nothing sent by callers.
                      Tcp("tcp_paced", {.address = "127.0.0.1",
                                        .pacing = {.chunk_bytes = 40'000, .chunks_in_flight = 2, .gap = absl::Microseconds(5)},
                                        .queue_puts = 4,
                                        .inline_bytes = 0})),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tidetape::collectives
