// What every backend says in the same words.
#ifndef TIDETAPE_SERVER_STORE_ERRORS_H_
#define TIDETAPE_SERVER_STORE_ERRORS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tidetape/v1/known_run.pb.h"

namespace tidetape::server {

inline absl::Status NoJobError(const std::string& job) {
  return absl::NotFoundError(absl::StrCat("the store has no job '", job, "'"));
}

inline absl::Status NamelessJobError() { return absl::InvalidArgumentError("a job needs a name"); }

inline absl::Status NoTapeError(const std::string& job, uint64_t structure_hash) {
  return absl::NotFoundError(absl::StrCat("job '", job, "' has no tape ", absl::Hex(structure_hash, absl::kZeroPad16)));
}

inline absl::Status KnownIncarnationError(const std::string& job, const std::string& id) {
  return absl::FailedPreconditionError(absl::StrCat("job '", job, "' already had incarnation '", id, "'"));
}

inline absl::Status StaleIncarnationError(const std::string& job, const std::string& id, const std::string& current) {
  return absl::FailedPreconditionError(
      absl::StrCat("job '", job, "': '", id, "' is not the current incarnation, which is '", current, "'"));
}

inline absl::Status NoRunError() { return absl::NotFoundError("the store knows no run of these blocks"); }

inline absl::Status CheckRunSize(const v1::KnownRun& run, int64_t keep_bytes) {
  const auto bytes = static_cast<int64_t>(run.ByteSizeLong());
  if (bytes <= keep_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a run of ", bytes, " bytes is larger than the ", keep_bytes, " bytes that are kept of all runs"));
}

inline absl::Status OldGenerationError(const std::string& job, int64_t generation, int64_t committed) {
  return absl::FailedPreconditionError(
      absl::StrCat("job '", job, "': generation ", generation, " is not above generation ", committed, ", committed before"));
}

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_ERRORS_H_
