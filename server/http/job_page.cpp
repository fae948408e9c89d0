#include "server/http/job_page.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/http/job_charts.h"
#include "server/http/page.h"
#include "server/text/markup.h"
#include "server/text/units.h"
#include "server/text/words.h"

namespace tidetape::server {
namespace {

using Events = std::vector<std::pair<std::string, v1::JobEvent>>;

// More are folded away, or counted.
constexpr size_t kEvents = 8;
constexpr int kRanks = 64;
constexpr int kValues = 200;

std::string Small(const std::string& markup) { return absl::StrCat("<small>", markup, "</small>"); }

std::string Note(const std::string& text) { return absl::StrCat("<p class=\"note\">", EscapeMarkup(text), "</p>\n"); }

std::string Age(absl::Duration age) {
  if (age < absl::Seconds(1)) return "just now";
  if (age < absl::Minutes(2)) return absl::StrCat(absl::ToInt64Seconds(age), " s ago");
  if (age < absl::Hours(2)) return absl::StrCat(absl::ToInt64Minutes(age), " min ago");
  return absl::StrCat(absl::ToInt64Hours(age), " h ago");
}

// The rank with the largest measured step peak; null where none has reported.
const v1::RankStatus* WorstRank(const v1::GetJobResponse& job) {
  const v1::RankStatus* worst = nullptr;
  for (const v1::RankStatus& rank : job.ranks()) {
    if (!rank.has_last_report()) continue;
    if (worst == nullptr || rank.last_report().step_peak_bytes() > worst->last_report().step_peak_bytes()) worst = &rank;
  }
  return worst;
}

std::string EventSection(const JobPageInput& input) {
  Events newest, older;
  for (int i = input.job.events_size(); i-- > 0;) {
    (newest.size() < kEvents ? newest : older).emplace_back(input.job.summary().job(), input.job.events(i));
  }
  if (newest.empty()) return Section("Recent events", Note("None since this server started."));
  std::string body = EventList(newest, false, input.now);
  if (!older.empty()) {
    absl::StrAppend(&body, "<details><summary>", older.size(), " older</summary>\n", EventList(older, false, input.now),
                    "</details>\n");
  }
  return Section("Recent events", body);
}

std::string ConstraintsText(const v1::Constraints& constraints) {
  if (constraints.disabled()) return "disabled: everything is kept";
  std::vector<std::string> parts;
  if (constraints.has_memory_limit_bytes()) parts.push_back("limit " + FormatLimit(constraints.memory_limit_bytes()));
  if (constraints.pins_size() > 0)
    parts.push_back(absl::StrCat(constraints.pins_size(), constraints.pins_size() == 1 ? " pin" : " pins"));
  if (constraints.frozen_generation() != 0) parts.push_back(absl::StrCat("frozen at generation ", constraints.frozen_generation()));
  return parts.empty() ? "nothing" : absl::StrJoin(parts, ", ");
}

// Of the slowest rank; empty where the collectives are FSDP2's own.
std::string CollectivesText(const v1::GetJobResponse& job) {
  double gather = 0, reduce = 0;
  int64_t covered = 0, least = INT64_MAX, most = 0;
  for (const v1::RankStatus& rank : job.ranks()) {
    if (!rank.last_report().has_collectives()) continue;
    const v1::CollectiveReport& report = rank.last_report().collectives();
    gather = std::max(gather, report.gather_seconds());
    reduce = std::max(reduce, report.reduce_seconds());
    covered = std::max(covered, report.covered_bytes());
    least = std::min(least, report.pacing_generation());
    most = std::max(most, report.pacing_generation());
  }
  if (least > most) return "";
  return absl::StrCat(FormatSeconds(gather), " gathering, ", FormatSeconds(reduce), " reducing",
                      Small(absl::StrCat(FormatBytes(covered), " gathered without copies; pacing of generation ", most,
                                         least < most ? " on the rank that has told last" : "")));
}

std::string NowSection(const JobPageInput& input) {
  const v1::JobSummary& job = input.job.summary();
  std::vector<std::pair<std::string, std::string>> figures;
  const std::string waits = job.waiting_for().empty() ? "" : Small(EscapeMarkup("waits for " + job.waiting_for()));
  const std::string why_ended = job.end_reason().empty() ? "" : Small(EscapeMarkup(job.end_reason()));
  figures.emplace_back("State", StateBadge(job.state()) + waits + why_ended);
  figures.emplace_back("Ranks connected", absl::StrCat(job.connected_ranks(), " of ", job.world_size()));
  figures.emplace_back("Memory limit", FormatLimit(job.memory_limit_bytes()));
  if (const v1::RankStatus* worst = WorstRank(input.job); worst != nullptr) {
    const std::string node = worst->node().empty() ? "" : " on " + EscapeMarkup(worst->node());
    figures.emplace_back("Worst rank",
                         absl::StrCat("rank ", worst->rank(), node,
                                      Small(FormatBytes(worst->last_report().step_peak_bytes()) + " at the step's peak")));
    figures.emplace_back("Step peak, measured",
                         absl::StrCat(FormatBytes(job.step_peak_bytes()), Small("prediction is off by " + ResidualText(job))));
    figures.emplace_back("Newest step",
                         absl::StrCat(job.step(), Small(FormatSeconds(job.step_seconds()) + " on the slowest rank")));
    figures.emplace_back("Replay, measured", absl::StrCat(FormatSeconds(job.replay_seconds()), Small("a step, on the worst rank")));
  }
  if (input.plan != nullptr) {
    const v1::Plan& plan = *input.plan;
    figures.emplace_back("Generation",
                         absl::StrCat(plan.generation(), Small(Age(input.now - absl::FromUnixMicros(plan.committed_unix_micros())) +
                                                               ": " + EscapeMarkup(plan.reason()))));
    figures.emplace_back("Step peak, predicted",
                         absl::StrCat(PeakText(plan), Small("in the " + EscapeMarkup(HolderText(plan.peak_holder())))));
    figures.emplace_back("Replay, predicted",
                         absl::StrCat(FormatSeconds(plan.replay_seconds()),
                                      Small(absl::StrFormat("a step; proven within %.3g %% of the best", 100 * plan.gap_ratio()))));
    figures.emplace_back("Kept for backward", FormatBytes(plan.saved_bytes()));
    if (plan.moved_bytes() > 0) {
      figures.emplace_back("Moved to host memory",
                           FormatBytes(plan.moved_bytes()) + Small(FormatSeconds(plan.move_seconds()) + " a step there and back"));
    }
    figures.emplace_back("Least possible peak", FormatBytes(plan.least_peak_bytes()) +
                                                    (plan.feasible() ? "" : Small("<span class=\"bad\">above the limit</span>")));
  }
  if (input.plan != nullptr && input.plan->has_pacing()) {
    const v1::PacingPlan& pacing = input.plan->pacing();
    figures.emplace_back("Pacing of the collectives",
                         absl::StrCat(PacingText(pacing), Small(absl::StrCat("gathering all units once takes ",
                                                                             FormatSeconds(pacing.gather_seconds())))));
  }
  if (const std::string collectives = CollectivesText(input.job); !collectives.empty()) {
    figures.emplace_back("Collectives, measured", collectives);
  }
  figures.emplace_back("Asked by operators", EscapeMarkup(ConstraintsText(input.job.constraints())));
  if (!input.job.device().empty()) {
    figures.emplace_back("Runs on",
                         EscapeMarkup(input.job.device()) +
                             (input.job.torch_version().empty() ? "" : Small("torch " + EscapeMarkup(input.job.torch_version()))));
  }
  return Section("Now", Figures(figures));
}

template <typename Response, typename Draw>
std::string Drawn(const std::string& heading, const std::shared_ptr<const JobInsight>& insight,
                  absl::StatusOr<Response> JobInsight::*part, Draw draw) {
  if (insight == nullptr) return Section(heading, Note("Being computed; it will be here when the page is loaded again."));
  const absl::StatusOr<Response>& response = (*insight).*part;
  return Section(heading, response.ok() ? draw(*response) : Note(std::string(response.status().message())));
}

// Blocks with one plan and equal values are told once.
struct BlockGroup {
  std::vector<std::string> names;
  const v1::BlockPlan* plan = nullptr;
  const v1::ExplainedBlock* values = nullptr;  // null where they are not known
};

std::string GroupKey(const v1::BlockPlan& plan) {
  v1::BlockPlan same = plan;
  same.clear_block();
  same.clear_name();
  return same.SerializeAsString();
}

std::vector<BlockGroup> GroupBlocks(const JobPageInput& input) {
  const v1::ExplainPlanResponse* explained = nullptr;
  if (input.insight != nullptr && input.insight->explanation.ok() && input.insight->generation == input.plan->generation()) {
    explained = &*input.insight->explanation;
  }
  std::vector<BlockGroup> groups;
  std::map<std::string, size_t> known;
  for (int i = 0; i < input.plan->blocks_size(); ++i) {
    const v1::BlockPlan& block = input.plan->blocks(i);
    const auto [it, inserted] = known.emplace(GroupKey(block), groups.size());
    if (inserted) {
      const bool has_values = explained != nullptr && i < explained->blocks_size();
      groups.push_back({{}, &block, has_values ? &explained->blocks(i) : nullptr});
    }
    groups[it->second].names.push_back(block.name());
  }
  return groups;
}

std::string NamesOf(const BlockGroup& group) {
  if (group.names.size() == 1) return EscapeMarkup(group.names.front());
  return EscapeMarkup(group.names.front()) + Small(absl::StrCat("and ", group.names.size() - 1, " alike"));
}

std::string ValuesOf(const v1::ExplainedBlock& block) {
  HtmlTable table({"Value", "In backward", "Bytes", "Replay", "Why"}, {2, 3});
  for (int i = 0; i < std::min(block.values_size(), kValues); ++i) {
    const v1::ExplainedValue& value = block.values(i);
    const std::string label = value.label().empty() ? absl::StrCat("storage ", value.storage()) : value.label();
    table.Add({EscapeMarkup(label),
               EscapeMarkup(value.action() == v1::ACTION_UNSPECIFIED ? "not read" : ActionName(value.action())),
               FormatBytes(value.bytes()), FormatSeconds(value.replay_seconds()), EscapeMarkup(value.why())});
  }
  const int more = block.values_size() - kValues;
  return table.Markup() + (more > 0 ? Note(absl::StrCat(more, " more; tidetapectl explain lists all")) : "");
}

std::string BlockSection(const JobPageInput& input) {
  const std::string heading = "Kept and replayed, by block";
  if (input.plan == nullptr) return Section(heading, Note("No plan yet."));
  HtmlTable table({"Blocks", "Kept, each", "Values kept", "Ops replayed", "Replay time, each", "Own peak"}, {1, 2, 3, 4, 5});
  std::string values;
  for (const BlockGroup& group : GroupBlocks(input)) {
    const v1::BlockPlan& plan = *group.plan;
    std::string kept = EscapeMarkup(KeptText(plan));
    if (plan.moved_size() > 0) absl::StrAppend(&kept, " and ", plan.moved_size(), " moved");
    table.Add({NamesOf(group), FormatBytes(plan.saved_bytes()), kept, absl::StrCat(plan.replayed_size()),
               FormatSeconds(plan.replay_seconds()), FormatBytes(plan.own_peak_bytes())});
    if (group.values == nullptr || group.values->values().empty()) continue;
    const std::string alike = group.names.size() == 1 ? "" : absl::StrCat(" and ", group.names.size() - 1, " alike");
    absl::StrAppend(&values, "<details><summary>Values of ", EscapeMarkup(group.names.front()), alike, "</summary>\n",
                    ValuesOf(*group.values), "</details>\n");
  }
  return Section(heading, table.Markup() + values);
}

std::string RankSection(const JobPageInput& input) {
  std::vector<const v1::RankStatus*> ranks;
  for (const v1::RankStatus& rank : input.job.ranks()) ranks.push_back(&rank);
  std::stable_sort(ranks.begin(), ranks.end(), [](const auto* a, const auto* b) {
    return a->last_report().step_peak_bytes() > b->last_report().step_peak_bytes();
  });
  HtmlTable table({"Rank", "Node", "Connected", "Generation", "Step", "Step time", "Step peak", "Replay", "Kept", "Last heard"},
                  {3, 4, 5, 6, 7, 8, 9});
  for (size_t i = 0; i < std::min<size_t>(ranks.size(), kRanks); ++i) {
    const v1::RankStatus& rank = *ranks[i];
    const v1::StepReport& report = rank.last_report();
    const bool told = rank.has_last_report();
    const std::string error =
        rank.plan_error().empty() ? "" : Small("<span class=\"bad\">" + EscapeMarkup(rank.plan_error()) + "</span>");
    table.Add({absl::StrCat(rank.rank()), EscapeMarkup(rank.node().empty() ? "-" : rank.node()),
               rank.connected() ? "yes" : "<span class=\"warn\">no</span>", absl::StrCat(rank.active_generation(), error),
               told ? absl::StrCat(report.step()) : "-", told ? FormatSeconds(report.step_seconds()) : "-",
               told ? FormatBytes(report.step_peak_bytes()) : "-", told ? FormatSeconds(report.replay_seconds()) : "-",
               told ? FormatBytes(report.saved_bytes()) : "-", Age(absl::Seconds(rank.silent_seconds()))});
  }
  if (table.empty()) return Section("Ranks", Note("None yet."));
  const int64_t more = static_cast<int64_t>(ranks.size()) - kRanks;
  return Section("Ranks, largest step peak first",
                 table.Markup() + (more > 0 ? Note(absl::StrCat(more, " more; tidetapectl job lists all")) : ""));
}

}  // namespace

std::string EventList(const Events& newest_first, bool jobs, absl::Time now) {
  std::string markup = "<ol class=\"events\">\n";
  for (const auto& [job, event] : newest_first) {
    const absl::Time at = absl::FromUnixMicros(event.unix_micros());
    const bool today = absl::ToCivilDay(at, absl::UTCTimeZone()) == absl::ToCivilDay(now, absl::UTCTimeZone());
    absl::StrAppend(&markup, "<li><time>", absl::FormatTime(today ? "%H:%M:%S" : "%Y-%m-%d %H:%M:%S", at, absl::UTCTimeZone()),
                    "</time>");
    if (jobs) absl::StrAppend(&markup, "<a href=\"job?name=", EscapeQuery(job), "\">", EscapeMarkup(job), "</a> ");
    absl::StrAppend(&markup, EscapeMarkup(event.text()), "</li>\n");
  }
  return markup + "</ol>\n";
}

std::string StateBadge(v1::JobSummary::State state) {
  static const auto& kColours = *new std::map<v1::JobSummary::State, const char*>{{v1::JobSummary::STATE_RUNNING, "good"},
                                                                                  {v1::JobSummary::STATE_SWITCHING, "busy"},
                                                                                  {v1::JobSummary::STATE_GATHERING, "busy"},
                                                                                  {v1::JobSummary::STATE_LOST, "bad"},
                                                                                  {v1::JobSummary::STATE_ENDED, "over"}};
  const auto colour = kColours.find(state);
  return absl::StrCat("<span class=\"state ", colour == kColours.end() ? "over" : colour->second, "\">", StateName(state),
                      "</span>");
}

std::string JobPageBody(const JobPageInput& input) {
  const int64_t limit = input.job.summary().memory_limit_bytes();
  std::string body = EventSection(input) + NowSection(input);
  body += Drawn("Frontier", input.insight, &JobInsight::frontier, FrontierFigure);
  body += Drawn("Memory through the step", input.insight, &JobInsight::memory,
                [limit](const v1::GetStepMemoryResponse& memory) { return StepMemoryFigure(memory, limit); });
  body += BlockSection(input);
  // Agents would say nothing else: no message of theirs has a word about collectives.
  body += Section("Collectives", Note("This server sends no pacing plan, so all ranks run the stock collectives."));
  body += RankSection(input);
  if (!input.grafana_link.empty()) {
    body += Section("Elsewhere", absl::StrCat("<p><a href=\"", EscapeMarkup(input.grafana_link), "\">Grafana dashboard</a></p>\n"));
  }
  return body;
}

}  // namespace tidetape::server
