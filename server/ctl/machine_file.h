// The simulator's machine as a JSON file.
#ifndef TIDETAPE_SERVER_CTL_MACHINE_FILE_H_
#define TIDETAPE_SERVER_CTL_MACHINE_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "collectives/simulator/machine.h"

namespace tidetape::ctl {

// {"local": {"bytes_per_second", "latency_seconds", "put_seconds", "sender_copies", "multicast"}, "network": {likewise},
// "copy_bytes_per_second", "add_elements_per_second", "step_seconds"}: the fields of collectives::Machine. What the file leaves out
// is as in `defaults`. InvalidArgument names the field that is unknown, of another type, negative, or a rate of 0.
absl::StatusOr<collectives::Machine> ParseMachine(const std::string& json, const collectives::Machine& defaults);

// The same of a file; NotFound where it cannot be read. Messages name it.
absl::StatusOr<collectives::Machine> ReadMachineFile(const std::string& path, const collectives::Machine& defaults);

}  // namespace tidetape::ctl

#endif  // TIDETAPE_SERVER_CTL_MACHINE_FILE_H_
