// absl::Status as grpc::Status: the codes are the same.
#ifndef TIDETAPE_SERVER_GRPC_STATUS_H_
#define TIDETAPE_SERVER_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace tidetape::server {

inline grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_GRPC_STATUS_H_
