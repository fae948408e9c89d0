// The stand-in as tests use it. See standin.h.
#ifndef TIDETAPE_COLLECTIVES_TESTING_NCCL_STANDIN_STANDIN_LIBRARY_H_
#define TIDETAPE_COLLECTIVES_TESTING_NCCL_STANDIN_STANDIN_LIBRARY_H_

#include <memory>
#include <string>
#include <vector>

#include "collectives/device/host_device.h"
#include "collectives/testing/nccl_standin/standin.h"

namespace tidetape::collectives {

// Loaded into this process, and configured. Tests of ranks make one in each rank's process.
class StandinLibrary {
 public:
  explicit StandinLibrary(const StandinOptions& options);

  static std::string Path();
  // A host in a GPU's place that knows the stand-in's memory. Never destroyed: transports may outlive the caller.
  HostDevice& device() const { return *device_; }
  std::vector<std::string> Calls() const;
  // How many calls begin so.
  int Count(const std::string& beginning) const;

 private:
  const char* (*calls_)();
  HostDevice* device_;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TESTING_NCCL_STANDIN_STANDIN_LIBRARY_H_
