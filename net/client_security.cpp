#include "net/client_security.h"

#include <arpa/inet.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tidetape::net {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::Status ReadFile(const std::string& path, const std::string& what, std::string& content) {
  if (path.empty()) return absl::OkStatus();
  std::ifstream file(path, std::ios::binary);
  content.assign(std::istreambuf_iterator<char>(file), {});
  if (file.bad() || !file.is_open()) return absl::FailedPreconditionError(absl::StrCat("cannot read ", what, " ", path));
  if (content.empty()) return absl::FailedPreconditionError(absl::StrCat(what, " ", path, " is empty"));
  return absl::OkStatus();
}

}  // namespace

ClientSecurity SecurityFromEnvironment() {
  return {Environment("TIDETAPE_TLS_CA"), Environment("TIDETAPE_TLS_CERT"), Environment("TIDETAPE_TLS_KEY"),
          Environment("TIDETAPE_TLS_NAME"), Environment("TIDETAPE_TOKEN_FILE")};
}

absl::StatusOr<ClientCredentials> ClientCredentials::Load(const ClientSecurity& security, const std::string& address) {
  if (security.certificate_file.empty() != security.key_file.empty()) {
    return absl::FailedPreconditionError("a client's certificate and its key go together (TIDETAPE_TLS_CERT, TIDETAPE_TLS_KEY)");
  }
  if (security.ca_file.empty() && !security.certificate_file.empty()) {
    return absl::FailedPreconditionError("a client's certificate needs the authority of the server's, too (TIDETAPE_TLS_CA)");
  }
  ClientCredentials credentials;
  credentials.encrypted_ = !security.ca_file.empty();
  credentials.server_name_ = security.server_name;
  absl::Status status = ReadFile(security.ca_file, "the authority's certificate", credentials.certificates_.pem_root_certs);
  if (status.ok()) status = ReadFile(security.certificate_file, "the certificate", credentials.certificates_.pem_cert_chain);
  if (status.ok()) status = ReadFile(security.key_file, "the key", credentials.certificates_.pem_private_key);
  std::string token;
  if (status.ok()) status = ReadFile(security.token_file, "the token", token);
  if (!status.ok()) return status;
  credentials.token_ = std::string(absl::StripAsciiWhitespace(token));
  for (const char c : credentials.token_) {
    // Anything else would end the process inside gRPC.
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) {
      return absl::FailedPreconditionError(absl::StrCat("the token in ", security.token_file, " has characters that no token has"));
    }
  }
  if (!credentials.token_.empty() && !credentials.encrypted_ && !IsLoopback(address)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the token would go to ", address, " unencrypted; set TIDETAPE_TLS_CA to the authority of the server's certificate"));
  }
  return credentials;
}

std::shared_ptr<grpc::ChannelCredentials> ClientCredentials::ForChannel(grpc::ChannelArguments& arguments) const {
  if (!encrypted_) return grpc::InsecureChannelCredentials();
  if (!server_name_.empty()) arguments.SetSslTargetNameOverride(server_name_);
  return grpc::SslCredentials(certificates_);
}

void ClientCredentials::AddToken(grpc::ClientContext& context) const {
  if (!token_.empty()) context.AddMetadata("authorization", "Bearer " + token_);
}

bool ClientCredentials::SameChannel(const ClientCredentials& other) const {
  return encrypted_ == other.encrypted_ && server_name_ == other.server_name_ &&
         certificates_.pem_root_certs == other.certificates_.pem_root_certs &&
         certificates_.pem_cert_chain == other.certificates_.pem_cert_chain &&
         certificates_.pem_private_key == other.certificates_.pem_private_key;
}

bool IsLoopback(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  in_addr ipv4{};
  const bool is_ipv4 = inet_pton(AF_INET, host.c_str(), &ipv4) == 1;
  return host == "localhost" || host == "[::1]" || (is_ipv4 && absl::StartsWith(host, "127."));
}

}  // namespace tidetape::net
