// Who a call comes from: the token that it brings.
#ifndef TIDETAPE_SERVER_AUTH_AUTHENTICATOR_H_
#define TIDETAPE_SERVER_AUTH_AUTHENTICATOR_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "server/auth/rights.h"
#include "server/auth/token_file.h"

namespace tidetape::server {

// Thread-safe.
class Authenticator {
 public:
  // Null: no tokens are asked for, and whoever reaches the server is an operator.
  explicit Authenticator(std::unique_ptr<TokenFile> tokens) : tokens_(std::move(tokens)) {}

  // Unauthenticated where the call brings no token, or one that is not in the file.
  absl::StatusOr<Principal> Identify(const grpc::CallbackServerContext& context) const;

  // The same by an Authorization header, as in "Bearer TOKEN". Where no tokens are asked for, it is `otherwise`, an operator.
  absl::StatusOr<Principal> IdentifyHeader(const std::optional<std::string>& authorization, const std::string& otherwise) const;

 private:
  const std::unique_ptr<TokenFile> tokens_;
};

// The name in the peer's certificate; without one, "anyone".
std::string CertificateName(const grpc::CallbackServerContext& context);

// The peer's host, without its port, as gRPC writes it: "ipv4:10.0.0.1".
std::string PeerHost(const grpc::CallbackServerContext& context);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_AUTH_AUTHENTICATOR_H_
