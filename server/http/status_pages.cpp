#include "server/http/status_pages.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/common/version.h"
#include "server/http/job_page.h"
#include "server/http/page.h"
#include "server/http/reader_check.h"
#include "server/text/markup.h"
#include "server/text/units.h"
#include "server/text/words.h"

namespace tidetape::server {
namespace {

using Events = std::vector<std::pair<std::string, v1::JobEvent>>;

constexpr size_t kEvents = 15;
constexpr size_t kJobs = 256;
constexpr int kSlowestRefresh = 3600;

std::string Parameter(const HttpRequest& request, const std::string& name) {
  const auto parameter = request.query.find(name);
  return parameter == request.query.end() ? "" : parameter->second;
}

int RefreshOf(const HttpRequest& request) {
  int seconds = 0;
  if (!absl::SimpleAtoi(Parameter(request, "refresh"), &seconds) || seconds < 0 || seconds > kSlowestRefresh)
    return kRefreshSeconds;
  return seconds;
}

std::string UpdatedText(absl::Time now) { return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", now, absl::UTCTimeZone()); }

std::string EventSection(const std::vector<std::shared_ptr<Job>>& jobs, absl::Time now) {
  Events events;
  for (const auto& job : jobs) {
    for (v1::JobEvent& event : job->events().Events()) events.emplace_back(job->name(), std::move(event));
  }
  // Of one time, the later ones first, too.
  std::reverse(events.begin(), events.end());
  std::stable_sort(events.begin(), events.end(),
                   [](const auto& a, const auto& b) { return a.second.unix_micros() > b.second.unix_micros(); });
  if (events.size() > kEvents) events.resize(kEvents);
  return Section("Recent events",
                 events.empty() ? "<p class=\"note\">None since this server started.</p>\n" : EventList(events, true, now));
}

std::string ServerSection(const StatusSources& sources) {
  const absl::Status ready = sources.ready();
  const std::string state = ready.ok() ? "<span class=\"state good\">ready</span>"
                                       : absl::StrCat("<span class=\"state bad\">not ready</span><small>",
                                                      EscapeMarkup(std::string(ready.message())), "</small>");
  return Section("Server", Figures({{"State", state}, {"Version", kVersion}, {"Open streams", absl::StrCat(sources.streams())}}));
}

std::string JobSection(const std::vector<std::shared_ptr<Job>>& jobs) {
  HtmlTable table(
      {"Job", "State", "Ranks", "Generation", "Limit", "Step peak", "Predicted", "Off by", "Step", "Step time", "Replay"},
      {2, 3, 4, 5, 6, 7, 8, 9, 10});
  std::vector<v1::JobSummary> summaries;
  for (const auto& job : jobs) summaries.push_back(job->Summary());
  // Those that run first.
  std::stable_sort(summaries.begin(), summaries.end(), [](const auto& a, const auto& b) {
    return (a.state() == v1::JobSummary::STATE_ENDED) < (b.state() == v1::JobSummary::STATE_ENDED);
  });
  for (size_t i = 0; i < std::min(summaries.size(), kJobs); ++i) {
    const v1::JobSummary& job = summaries[i];
    const std::string waits =
        job.waiting_for().empty() ? "" : absl::StrCat("<small>waits for ", EscapeMarkup(job.waiting_for()), "</small>");
    const bool reported = job.step_peak_bytes() > 0;
    table.Add({absl::StrCat("<a href=\"job?name=", EscapeQuery(job.job()), "\">", EscapeMarkup(job.job()), "</a>"),
               StateBadge(job.state()) + waits, absl::StrCat(job.connected_ranks(), " of ", job.world_size()),
               job.generation() == 0 ? "-" : absl::StrCat(job.generation()), FormatLimit(job.memory_limit_bytes()),
               reported ? FormatBytes(job.step_peak_bytes()) : "-",
               job.generation() == 0 ? "-" : FormatBytes(job.predicted_peak_bytes()), ResidualText(job),
               reported ? absl::StrCat(job.step()) : "-", reported ? FormatSeconds(job.step_seconds()) : "-",
               reported ? FormatSeconds(job.replay_seconds()) : "-"});
  }
  if (table.empty()) return Section("Jobs", "<p class=\"note\">No job has connected yet.</p>\n");
  const std::string more = summaries.size() > kJobs ? absl::StrCat("<p class=\"note\">", summaries.size() - kJobs,
                                                                   " more; tidetapectl jobs lists all.</p>\n")
                                                    : "";
  return Section("Jobs", table.Markup() + more);
}

HttpResponse ServerPage(const StatusSources& sources, const HttpRequest& request) {
  const absl::Time now = sources.clock->Now();
  const auto jobs = sources.jobs();
  PageFrame frame;
  frame.title = "Tidetape";
  frame.heading = "Tidetape";
  frame.updated = UpdatedText(now);
  frame.refresh_seconds = RefreshOf(request);
  frame.body = EventSection(jobs, now) + ServerSection(sources) + JobSection(jobs);
  return MakePage(frame);
}

HttpResponse JobPage(const StatusSources& sources, const HttpRequest& request) {
  const std::string name = Parameter(request, "name");
  const auto jobs = sources.jobs();
  const auto job = std::find_if(jobs.begin(), jobs.end(), [&name](const auto& candidate) { return candidate->name() == name; });
  PageFrame frame;
  frame.updated = UpdatedText(sources.clock->Now());
  frame.refresh_seconds = RefreshOf(request);
  frame.query = absl::StrCat("name=", EscapeQuery(name));
  frame.title = absl::StrCat(name, " · Tidetape");
  frame.heading = absl::StrCat("<a href=\"./\">Tidetape</a> / ", EscapeMarkup(name));
  if (job == jobs.end()) {
    frame.body = "<p>There is no such job. It may have ended and been forgotten.</p>\n";
    HttpResponse response = MakePage(frame);
    response.status = 404;
    return response;
  }
  JobPageInput input;
  input.job = (*job)->Describe();
  input.plan = (*job)->committed();
  input.insight = sources.insights->Get(*job);
  input.now = sources.clock->Now();
  input.grafana_link = absl::StrReplaceAll(sources.grafana_url, {{"{job}", EscapeQuery(name)}});
  frame.body = JobPageBody(input);
  return MakePage(frame);
}

}  // namespace

absl::Status CheckGrafanaUrl(const std::string& url) {
  if (url.empty() || absl::StartsWith(url, "http://") || absl::StartsWith(url, "https://")) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--grafana_url=", url, ": begin with http:// or https://, as in https://grafana.example/d/tidetape-job?var-job={job}"));
}

std::map<std::string, HttpServer::Page> MakeStatusPages(const StatusSources& sources) {
  using MakeBody = HttpResponse (*)(const StatusSources&, const HttpRequest&);
  const auto for_readers = [sources](MakeBody make) {
    return [sources, make](const HttpRequest& request) {
      if (absl::Status status = CheckReader(*sources.authenticator, request); !status.ok())
        return Refuse(status, "Basic realm=\"tidetape\"");
      return make(sources, request);
    };
  };
  return {{"/", for_readers(ServerPage)}, {"/job", for_readers(JobPage)}};
}

}  // namespace tidetape::server
