// The HTTP port's door: the tokens are those of the agents' port.
#ifndef TIDETAPE_SERVER_HTTP_READER_CHECK_H_
#define TIDETAPE_SERVER_HTTP_READER_CHECK_H_

#include <string>

#include "absl/status/status.h"
#include "server/auth/authenticator.h"
#include "server/http/http_server.h"

namespace tidetape::server {

// OK for a reader or an operator. The token comes as "Bearer TOKEN", or, from a browser, as the password of "Basic".
absl::Status CheckReader(const Authenticator& authenticator, const HttpRequest& request);

// 401 or 403 with the status' message. `challenge`: how a client may say who it is, as in "Bearer".
HttpResponse Refuse(const absl::Status& status, const std::string& challenge);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_HTTP_READER_CHECK_H_
