#include "server/http/monitoring_pages.h"

#include "absl/strings/str_cat.h"
#include "server/http/reader_check.h"
#include "server/metrics/metrics_page.h"

namespace tidetape::server {
std::map<std::string, HttpServer::Page> MakeMonitoringPages(const MonitoringSources& sources) {
  std::map<std::string, HttpServer::Page> pages;
  pages["/healthz"] = [](const HttpRequest&) { return HttpResponse{.body = "ok\n"}; };
  pages["/readyz"] = [sources](const HttpRequest& request) {
    const absl::Status ready = sources.ready();
    if (ready.ok()) return HttpResponse{.body = "ready\n"};
    const bool may_know = CheckReader(*sources.authenticator, request).ok();
    return HttpResponse{.status = 503, .body = may_know ? absl::StrCat("not ready: ", ready.message(), "\n") : "not ready\n"};
  };
  pages["/metrics"] = [sources](const HttpRequest& request) {
    if (absl::Status status = CheckReader(*sources.authenticator, request); !status.ok()) return Refuse(status, "Bearer");
    return HttpResponse{.content_type = kMetricsContentType, .body = sources.metrics()};
  };
  return pages;
}

}  // namespace tidetape::server
