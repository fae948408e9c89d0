// What every Transport must do, as one suite of tests over real processes. A transport's test says how ranks join and runs it:
//
//   INSTANTIATE_TEST_SUITE_P(Shm, TransportContractTest, ::testing::Values(TransportUnderTest{"shm", JoinShm}));
#ifndef TIDETAPE_COLLECTIVES_TESTING_TRANSPORT_CONTRACT_H_
#define TIDETAPE_COLLECTIVES_TESTING_TRANSPORT_CONTRACT_H_

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/testing/rank_processes.h"
#include "collectives/transport.h"
#include "collectives/transports/rendezvous/rendezvous.h"
#include "gtest/gtest.h"

namespace tidetape::collectives {

struct TransportUnderTest {
  std::string name;
  // Runs in the rank's own process.
  std::function<absl::StatusOr<std::unique_ptr<Transport>>(const GroupOptions& options, Store& store)> join;
  // An arena range whose pages local ranks share; empty where the transport has none.
  SharedRegion shared_region;
  // Runs before each test in the test's own process. PERMISSION_DENIED skips the test.
  std::function<absl::Status()> set_up;
};

std::ostream& operator<<(std::ostream& out, const TransportUnderTest& transport);

class TransportContractTest : public ::testing::TestWithParam<TransportUnderTest> {
 protected:
  using Body = std::function<absl::Status(Transport& transport)>;

  void SetUp() override;

  // Options of a rank, but for the rank.
  GroupOptions Options(int size) const;
  // Joins `size` processes to one group and runs `body` in each.
  std::vector<RankOutcome> Run(int size, uint64_t arena_bytes, const Body& body);
  // The same, where all must end well.
  void RunWell(int size, uint64_t arena_bytes, const Body& body);

  TemporaryFolder folder_;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TESTING_TRANSPORT_CONTRACT_H_
