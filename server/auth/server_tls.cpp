#include "server/auth/server_tls.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "net/client_security.h"

namespace tidetape::server {
namespace {

constexpr unsigned kLookSeconds = 1;

}  // namespace

absl::Status CheckServerTls(const ServerTls& tls, const std::string& flag, const std::string& listen, bool allow_plaintext) {
  if (tls.certificate_file.empty() != tls.key_file.empty()) {
    return absl::FailedPreconditionError("--tls_cert and --tls_key go together");
  }
  if (tls.certificate_file.empty()) {
    if (!tls.client_ca_file.empty()) return absl::FailedPreconditionError("--tls_client_ca needs --tls_cert and --tls_key");
    if (!allow_plaintext && !net::IsLoopback(listen)) {
      return absl::FailedPreconditionError(
          absl::StrCat(flag, "=", listen,
                       " offers plaintext to other machines; give the server a certificate (--tls_cert, "
                       "--tls_key), listen on 127.0.0.1, or say --allow_plaintext"));
    }
    return absl::OkStatus();
  }
  for (const std::string& file : {tls.certificate_file, tls.key_file, tls.client_ca_file}) {
    if (!file.empty() && access(file.c_str(), R_OK) != 0) {
      return absl::FailedPreconditionError(absl::StrCat("cannot read ", file));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const ServerTls& tls, const std::string& listen,
                                                                               bool allow_plaintext) {
  if (absl::Status status = CheckServerTls(tls, "--listen", listen, allow_plaintext); !status.ok()) return status;
  if (tls.certificate_file.empty()) return grpc::InsecureServerCredentials();
  using grpc::experimental::FileWatcherCertificateProvider;
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<FileWatcherCertificateProvider>(tls.key_file, tls.certificate_file, tls.client_ca_file, kLookSeconds));
  options.watch_identity_key_cert_pairs();
  if (!tls.client_ca_file.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

}  // namespace tidetape::server
