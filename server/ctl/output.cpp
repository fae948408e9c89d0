#include "server/ctl/output.h"

#include <google/protobuf/util/json_util.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "server/ctl/table.h"
#include "server/ctl/units.h"

namespace tidetape::ctl {
namespace {

std::string StateName(v1::JobSummary::State state) {
  return absl::AsciiStrToLower(absl::StripPrefix(v1::JobSummary::State_Name(state), "STATE_"));
}

std::string ActionName(v1::Action action) {
  if (action == v1::ACTION_UNSPECIFIED) return "-";
  return absl::AsciiStrToLower(absl::StripPrefix(v1::Action_Name(action), "ACTION_"));
}

std::string Holder(const v1::PeakHolder& holder) {
  const std::string phase = absl::AsciiStrToLower(absl::StripPrefix(v1::PeakHolder::Phase_Name(holder.phase()), "PHASE_"));
  return holder.name().empty() ? phase : absl::StrCat(phase, " of ", holder.name());
}

std::string Residual(const v1::JobSummary& job) {
  return job.has_peak_residual_ratio() ? absl::StrFormat("%+.2f %%", 100 * job.peak_residual_ratio()) : "-";
}

std::string BytesOrNone(int64_t bytes) { return bytes == 0 ? "-" : FormatBytes(bytes); }

}  // namespace

std::string ToJson(const google::protobuf::Message& message, bool indented) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  options.add_whitespace = indented;
  std::string json;
  // Every message of the contract can be printed.
  (void)google::protobuf::util::MessageToJsonString(message, &json, options);
  if (json.empty() || json.back() != '\n') json += "\n";
  return json;
}

void PrintJobs(const v1::ListJobsResponse& jobs, std::ostream& out) {
  if (jobs.jobs().empty()) {
    out << "no jobs\n";
    return;
  }
  Table table({"JOB", "STATE", "RANKS", "PLAN", "LIMIT", "PEAK", "PREDICTED", "OFF", "STEP", "STEP TIME", "REPLAY", "WAITS FOR"});
  for (const v1::JobSummary& job : jobs.jobs()) {
    table.Add({job.job(), StateName(job.state()), absl::StrCat(job.connected_ranks(), "/", job.world_size()),
               job.generation() == 0 ? "-" : absl::StrCat(job.generation()), FormatLimit(job.memory_limit_bytes()),
               BytesOrNone(job.step_peak_bytes()), BytesOrNone(job.predicted_peak_bytes()), Residual(job), absl::StrCat(job.step()),
               FormatSeconds(job.step_seconds()), FormatSeconds(job.replay_seconds()),
               job.waiting_for().empty() ? "-" : job.waiting_for()});
  }
  table.Print(out);
}

void PrintPlan(const v1::Plan& plan, std::ostream& out) {
  if (!plan.job().empty()) {
    out << "job          " << plan.job() << "\n"
        << "generation   " << (plan.generation() == 0 ? "not committed" : absl::StrCat(plan.generation())) << "\n";
  }
  if (plan.committed_unix_micros() != 0) {
    out << "committed    " << absl::FormatTime(absl::FromUnixMicros(plan.committed_unix_micros()), absl::UTCTimeZone()) << "\n";
  }
  if (!plan.reason().empty()) out << "reason       " << plan.reason() << "\n";
  out << "limit        " << FormatLimit(plan.memory_limit_bytes()) << (plan.feasible() ? "" : "  (cannot be held)") << "\n"
      << "step peak    " << FormatBytes(plan.step_peak_bytes()) << " in " << Holder(plan.peak_holder()) << "\n"
      << "least peak   " << FormatBytes(plan.least_peak_bytes()) << " in " << Holder(plan.least_peak_holder()) << "\n"
      << "saved        " << FormatBytes(plan.saved_bytes()) << "\n"
      << "replay       " << FormatSeconds(plan.replay_seconds()) << ", at least " << FormatSeconds(plan.lower_bound_seconds())
      << absl::StrFormat(" (gap %.3g %%)\n\n", 100 * plan.gap_ratio());
  Table table({"BLOCK", "NAME", "SAVED", "REPLAY", "OWN PEAK", "VALUES KEPT", "OPS REPLAYED"});
  for (const v1::BlockPlan& block : plan.blocks()) {
    table.Add({absl::StrCat(block.block()), block.name(), FormatBytes(block.saved_bytes()), FormatSeconds(block.replay_seconds()),
               FormatBytes(block.own_peak_bytes()),
               block.option() >= 0 ? absl::StrCat("option ", block.option()) : absl::StrCat(block.saved_size()),
               absl::StrCat(block.replayed_size())});
  }
  table.Print(out);
}

void PrintFrontier(const v1::GetFrontierResponse& frontier, bool of_block, std::ostream& out) {
  out << "limit " << FormatLimit(frontier.memory_limit_bytes()) << ", step peak " << FormatBytes(frontier.least_peak_bytes())
      << " to " << FormatBytes(frontier.largest_peak_bytes()) << "\n";
  if (frontier.has_current()) {
    out << "now   " << FormatBytes(frontier.current().bytes()) << ", replay " << FormatSeconds(frontier.current().replay_seconds())
        << "\n";
  }
  out << "\n";
  if (of_block) {
    PrintHull(frontier.points(), out);
    return;
  }
  Table table({"STEP PEAK", "REPLAY"});
  for (const v1::FrontierPoint& point : frontier.points()) {
    table.Add({FormatBytes(point.bytes()), FormatSeconds(point.replay_seconds())});
  }
  table.Print(out);
}

void PrintHull(const google::protobuf::RepeatedPtrField<v1::FrontierPoint>& points, std::ostream& out) {
  Table table({"SAVED", "REPLAY", "STORAGES KEPT"});
  for (const v1::FrontierPoint& point : points) {
    table.Add({FormatBytes(point.bytes()), FormatSeconds(point.replay_seconds()), absl::StrJoin(point.saved(), " ")});
  }
  table.Print(out);
}

void PrintExplanation(const v1::ExplainPlanResponse& explanation, std::ostream& out) {
  Table table({"BLOCK", "SITE", "VALUE", "ACTION", "BYTES", "REPLAY", "WHY"});
  for (const v1::ExplainedBlock& block : explanation.blocks()) {
    for (const v1::ExplainedValue& value : block.values()) {
      table.Add({block.name(), absl::StrCat(absl::Hex(value.site(), absl::kZeroPad16)),
                 value.label().empty() ? absl::StrCat("storage ", value.storage()) : value.label(), ActionName(value.action()),
                 FormatBytes(value.bytes()), FormatSeconds(value.replay_seconds()), value.why()});
    }
  }
  table.Print(out);
}

void PrintWatched(const v1::WatchJobResponse& response, std::ostream& out) {
  if (response.dropped() > 0) out << "(" << response.dropped() << " events were dropped)\n";
  if (response.has_event()) {
    const v1::JobEvent& event = response.event();
    out << absl::FormatTime("%H:%M:%E3S", absl::FromUnixMicros(event.unix_micros()), absl::UTCTimeZone()) << "  " << event.text()
        << std::endl;
    return;
  }
  const v1::JobSummary& job = response.summary();
  out << "step " << job.step() << "  " << StateName(job.state()) << "  generation " << job.generation() << "  peak "
      << FormatBytes(job.step_peak_bytes()) << " (" << Residual(job) << ")  step time " << FormatSeconds(job.step_seconds())
      << "  replay " << FormatSeconds(job.replay_seconds());
  if (!job.waiting_for().empty()) out << "  waits for " << job.waiting_for();
  out << std::endl;
}

}  // namespace tidetape::ctl
