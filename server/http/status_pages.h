// The status page: what happens on this server, for people.
//
//   /           recent events of all jobs first, then the server, then the jobs
//   /job?name=  one job
//
// Both take the token of a reader or an operator, as /metrics does; a browser asks for it and sends it as a password, with any user
// name. Both load themselves again every few seconds; ?refresh=0 stops that, another number of seconds changes it.
#ifndef TIDETAPE_SERVER_HTTP_STATUS_PAGES_H_
#define TIDETAPE_SERVER_HTTP_STATUS_PAGES_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/auth/authenticator.h"
#include "server/common/clock.h"
#include "server/http/http_server.h"
#include "server/http/job_insights.h"
#include "server/job/job.h"

namespace tidetape::server {

// What the pages show; called on any thread, and whatever it points to outlives the pages.
struct StatusSources {
  const Authenticator* authenticator = nullptr;
  Clock* clock = nullptr;
  // OK where agents may be sent here.
  std::function<absl::Status()> ready;
  // By name.
  std::function<std::vector<std::shared_ptr<Job>>()> jobs;
  // Open streams, of agents and watchers.
  std::function<size_t()> streams;
  std::shared_ptr<JobInsights> insights;
  // URL of a dashboard; "{job}" in it stands for the job's name. Empty: no link.
  std::string grafana_url;
};

// InvalidArgument where the URL does not begin with http:// or https://.
absl::Status CheckGrafanaUrl(const std::string& url);

std::map<std::string, HttpServer::Page> MakeStatusPages(const StatusSources& sources);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_HTTP_STATUS_PAGES_H_
