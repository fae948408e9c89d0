// The server's side of TLS.
#ifndef TIDETAPE_SERVER_AUTH_SERVER_TLS_H_
#define TIDETAPE_SERVER_AUTH_SERVER_TLS_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace tidetape::server {

// PEM files; all are read again when they change.
struct ServerTls {
  std::string certificate_file;
  std::string key_file;
  // Set: clients must bring a certificate of these authorities.
  std::string client_ca_file;
};

// FailedPrecondition where a file is missing or the names do not go together, and where plaintext would be offered to other
// machines
// (`listen`, the value of that flag, is not of this machine alone) without `allow_plaintext`.
absl::Status CheckServerTls(const ServerTls& tls, const std::string& flag, const std::string& listen, bool allow_plaintext);

// Plaintext where no certificate is named. Errors are those of CheckServerTls, for --listen.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const ServerTls& tls, const std::string& listen,
                                                                               bool allow_plaintext);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_AUTH_SERVER_TLS_H_
