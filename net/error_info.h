// Errors that programs can read: google.rpc.ErrorInfo as a detail of a gRPC status, beside its sentence for people.
//
// Pure functions; safe to call from any thread.
#ifndef TIDETAPE_NET_ERROR_INFO_H_
#define TIDETAPE_NET_ERROR_INFO_H_

#include <grpcpp/support/status.h>

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::net {

// The status with a reason in UPPER_SNAKE_CASE, and what it is about; it travels as the status' payload. `status` is not OK.
absl::Status WithErrorInfo(absl::Status status, const std::string& reason, const std::map<std::string, std::string>& metadata = {});

// absl::Status as grpc::Status: the codes are the same, and payloads become details.
grpc::Status ToGrpc(const absl::Status& status);

// Unset where the status has none.
std::optional<v1::ErrorInfo> ErrorInfoOf(const grpc::Status& status);
std::optional<v1::ErrorInfo> ErrorInfoOf(const absl::Status& status);

// The inverse of ToGrpc.
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace tidetape::net

#endif  // TIDETAPE_NET_ERROR_INFO_H_
