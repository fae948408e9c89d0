// NCCL as a library that is found when it is asked for.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_NCCL_LIBRARY_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_NCCL_LIBRARY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "collectives/transports/nccl/nccl_abi.h"

namespace tidetape::collectives {

// "2.31.2" of 23102.
std::string NcclVersionText(int version);

// Immutable. Libraries stay loaded until the process ends.
class NcclLibrary {
 public:
  // `path` is a libnccl.so.2, such as nvidia/nccl/lib/libnccl.so.2 among Python's packages; empty: what the loader finds
  // (LD_LIBRARY_PATH), which may be the one that torch has loaded. A path gives a library of its own beside it: communicators of
  // one must never go to the other. FAILED_PRECONDITION where there is no library, it is older than nccl::kLeastVersion, or it
  // lacks a function.
  static absl::StatusOr<NcclLibrary> Load(const std::string& path);

  const nccl::NcclFunctions& functions() const { return functions_; }
  int version() const { return version_; }
  // As the caller named it, for errors.
  const std::string& path() const { return path_; }

  // OK for success. Otherwise UNAVAILABLE with the call, NCCL's name for the error, and what it last said about `comm`, which may
  // be null.
  absl::Status Check(absl::string_view call, nccl::Result result, nccl::Comm comm) const;

 private:
  NcclLibrary() = default;

  nccl::NcclFunctions functions_;
  int version_ = 0;
  std::string path_;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_NCCL_NCCL_LIBRARY_H_
