// What monitoring reads over HTTP.
//
//   /healthz   200 while the process answers: restart it otherwise. Asks for no token.
//   /readyz    200 where agents may be sent here, else 503. Asks for no token; only who may read jobs is told why not.
//   /metrics   for Prometheus. Takes the token of a reader or an operator.
#ifndef TIDETAPE_SERVER_HTTP_MONITORING_PAGES_H_
#define TIDETAPE_SERVER_HTTP_MONITORING_PAGES_H_

#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "server/auth/authenticator.h"
#include "server/http/http_server.h"

namespace tidetape::server {

// What the pages show; all outlive them, and are called on any thread.
struct MonitoringSources {
  const Authenticator* authenticator = nullptr;
  // OK where agents may be sent here.
  std::function<absl::Status()> ready;
  // In Prometheus' text format.
  std::function<std::string()> metrics;
};

std::map<std::string, HttpServer::Page> MakeMonitoringPages(const MonitoringSources& sources);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_HTTP_MONITORING_PAGES_H_
