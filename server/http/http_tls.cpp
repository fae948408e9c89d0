#include "server/http/http_tls.h"

#include "server/common/log.h"

namespace tidetape::server {
namespace {

// OpenSSL calls it when a client has said hello; 0 ends the connection.
int LoadFiles(SSL* connection, void* argument) {
  const ServerTls& tls = *static_cast<const ServerTls*>(argument);
  bool loaded = SSL_use_certificate_chain_file(connection, tls.certificate_file.c_str()) == 1 &&
                SSL_use_PrivateKey_file(connection, tls.key_file.c_str(), SSL_FILETYPE_PEM) == 1 &&
                SSL_check_private_key(connection) == 1;
  if (loaded && !tls.client_ca_file.empty()) {
    X509_STORE* authorities = X509_STORE_new();
    loaded = X509_STORE_load_locations(authorities, tls.client_ca_file.c_str(), nullptr) == 1;
    SSL_set0_verify_cert_store(connection, authorities);  // owns it from now on
  }
  if (!loaded) spdlog::warn("http: cannot read the certificate {}, its key or the clients' authorities", tls.certificate_file);
  return loaded ? 1 : 0;
}

}  // namespace

void SetUpTls(SSL_CTX& context, const ServerTls& tls) {
  SSL_CTX_set_min_proto_version(&context, TLS1_2_VERSION);
  // OpenSSL hands the pointer back to LoadFiles, which only reads it.
  SSL_CTX_set_cert_cb(&context, LoadFiles, const_cast<ServerTls*>(&tls));
  // Nobody gets around the check of the certificate by going on with an older session.
  SSL_CTX_set_session_cache_mode(&context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(&context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  if (!tls.client_ca_file.empty()) {
    SSL_CTX_set_verify(&context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
}

}  // namespace tidetape::server
