// The page of one job.
#ifndef TIDETAPE_SERVER_HTTP_JOB_PAGE_H_
#define TIDETAPE_SERVER_HTTP_JOB_PAGE_H_

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "server/http/job_insights.h"
#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::server {

struct JobPageInput {
  v1::GetJobResponse job;
  std::shared_ptr<const v1::Plan> plan;       // committed; null before the first
  std::shared_ptr<const JobInsight> insight;  // null while it is under way
  std::string grafana_link;                   // of this job; empty: none
  absl::Time now;
};

// Markup for the page's body. Recent events come first.
std::string JobPageBody(const JobPageInput& input);

// Events as a list, newest first. `jobs`: the job of each, as a link, where the list is of several.
std::string EventList(const std::vector<std::pair<std::string, v1::JobEvent>>& newest_first, bool jobs, absl::Time now);

// The state with its colour.
std::string StateBadge(v1::JobSummary::State state);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_HTTP_JOB_PAGE_H_
