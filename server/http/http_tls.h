// TLS of the HTTP port.
#ifndef TIDETAPE_SERVER_HTTP_HTTP_TLS_H_
#define TIDETAPE_SERVER_HTTP_HTTP_TLS_H_

#include <openssl/ssl.h>

#include "server/auth/server_tls.h"

namespace tidetape::server {

// Sets up a context that reads the files of `tls` at every connection, so that renewed ones count at once; a connection whose files
// cannot be read ends. With a client_ca_file clients must bring a certificate of those authorities. `tls` outlives the context.
void SetUpTls(SSL_CTX& context, const ServerTls& tls);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_HTTP_HTTP_TLS_H_
