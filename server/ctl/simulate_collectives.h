// tidetapectl simulate-collectives: what collectives would cost on clusters that are not there.
#ifndef TIDETAPE_SERVER_CTL_SIMULATE_COLLECTIVES_H_
#define TIDETAPE_SERVER_CTL_SIMULATE_COLLECTIVES_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/ctl/output.h"

namespace tidetape::ctl {

struct SimulateCollectivesArguments {
  std::string gpus = "8..4096";  // "64", "8,64,512", or "8..4096": from the first by doubling to the last
  int32_t per_node = 8;
  std::string model = "llama-3.1-70b";
  std::string links;            // a machine file (machine_file.h); empty: an H100 cluster
  std::string chunk = "16MiB";  // most bytes of one put
  double gap_microseconds = 0;  // between puts over the network
  bool ring = false;            // instead of recursive doubling
};

// The numbers of GPUs that the text names; InvalidArgument where it names none, or more than 65536 of them.
absl::StatusOr<std::vector<int32_t>> ParseGpus(const std::string& text);

// Prints a table with its assumptions, or JSON: {"model", "assumptions": [], "machine": {}, "rows": [{"gpus", "scheme", ...}]}.
absl::Status SimulateCollectives(const SimulateCollectivesArguments& arguments, const OutputFormat& format, std::ostream& out);

}  // namespace tidetape::ctl

#endif  // TIDETAPE_SERVER_CTL_SIMULATE_COLLECTIVES_H_
