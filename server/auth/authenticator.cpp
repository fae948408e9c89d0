#include "server/auth/authenticator.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "net/error_info.h"

namespace tidetape::server {
namespace {

constexpr char kScheme[] = "bearer ";

}  // namespace

absl::StatusOr<Principal> Authenticator::Identify(const grpc::CallbackServerContext& context) const {
  const auto& metadata = context.client_metadata();
  const auto header = metadata.find("authorization");
  std::optional<std::string> authorization;
  if (header != metadata.end()) authorization.emplace(header->second.data(), header->second.size());
  return IdentifyHeader(authorization, CertificateName(context));
}

absl::StatusOr<Principal> Authenticator::IdentifyHeader(const std::optional<std::string>& authorization,
                                                        const std::string& otherwise) const {
  if (tokens_ == nullptr) return Principal{otherwise, Role::kOperator, "*"};
  if (!authorization.has_value()) {
    return net::WithErrorInfo(absl::UnauthenticatedError("a token is needed; set TIDETAPE_TOKEN_FILE to the file that holds yours"),
                              "TOKEN_MISSING");
  }
  if (!absl::StartsWithIgnoreCase(*authorization, kScheme))
    return net::WithErrorInfo(absl::UnauthenticatedError("the authorization is not a bearer token"), "TOKEN_MISSING");
  const std::string token(absl::StripAsciiWhitespace(authorization->substr(sizeof(kScheme) - 1)));
  std::optional<Principal> principal = tokens_->table()->Find(token);
  if (!principal.has_value()) {
    return net::WithErrorInfo(absl::UnauthenticatedError("the token is not known here; ask the operator for a new one"),
                              "TOKEN_UNKNOWN");
  }
  return *std::move(principal);
}

std::string CertificateName(const grpc::CallbackServerContext& context) {
  const auto auth = context.auth_context();
  if (auth == nullptr || !auth->IsPeerAuthenticated()) return "anyone";
  const auto names = auth->FindPropertyValues("x509_common_name");
  return names.empty() ? "anyone" : std::string(names.front().data(), names.front().size());
}

std::string PeerHost(const grpc::CallbackServerContext& context) {
  const std::string peer = context.peer();
  return peer.substr(0, peer.rfind(':'));
}

}  // namespace tidetape::server
