#include "server/ctl/output.h"

#include <google/protobuf/util/json_util.h>
#include <google/protobuf/wrappers.pb.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "server/ctl/table.h"
#include "server/text/units.h"
#include "server/text/words.h"

namespace tidetape::ctl {
namespace {

std::string BytesOrNone(int64_t bytes) { return bytes == 0 ? "-" : FormatBytes(bytes); }

std::string CollectiveSeconds(const v1::StepReport& report, double (v1::CollectiveReport::*seconds)() const) {
  return report.has_collectives() ? FormatSeconds((report.collectives().*seconds)()) : "-";
}

std::string TextOrNone(const std::string& text) { return text.empty() ? "-" : text; }

}  // namespace

std::string ToJson(const google::protobuf::Message& message, const OutputFormat& format) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  options.add_whitespace = !format.one_line;
  std::string json;
  // Every message of the contract can be printed.
  (void)google::protobuf::util::MessageToJsonString(message, &json, options);
  if (json.empty() || json.back() != '\n') json += "\n";
  return json;
}

std::string JsonString(const std::string& text) {
  google::protobuf::StringValue value;
  value.set_value(text);
  std::string json;
  // A string of a name or a message always can.
  (void)google::protobuf::util::MessageToJsonString(value, &json);
  return json;
}

void PrintJobs(const v1::ListJobsResponse& jobs, bool wide, std::ostream& out) {
  if (jobs.jobs().empty()) {
    out << "no jobs\n";
    return;
  }
  std::vector<std::string> header = {"JOB",       "STATE", "RANKS", "PLAN",      "LIMIT",  "PEAK",
                                     "PREDICTED", "OFF",   "STEP",  "STEP TIME", "REPLAY", "WAITS FOR"};
  if (wide) header.insert(header.end(), {"PREDICTED REPLAY", "INCARNATION", "ENDED BECAUSE"});
  Table table(header);
  for (const v1::JobSummary& job : jobs.jobs()) {
    std::vector<std::string> row = {job.job(),
                                    StateName(job.state()),
                                    absl::StrCat(job.connected_ranks(), "/", job.world_size()),
                                    job.generation() == 0 ? "-" : absl::StrCat(job.generation()),
                                    FormatLimit(job.memory_limit_bytes()),
                                    BytesOrNone(job.step_peak_bytes()),
                                    BytesOrNone(job.predicted_peak_bytes()),
                                    ResidualText(job),
                                    absl::StrCat(job.step()),
                                    FormatSeconds(job.step_seconds()),
                                    FormatSeconds(job.replay_seconds()),
                                    TextOrNone(job.waiting_for())};
    if (wide) {
      row.insert(row.end(),
                 {FormatSeconds(job.predicted_replay_seconds()), TextOrNone(job.incarnation()), TextOrNone(job.end_reason())});
    }
    table.Add(row);
  }
  table.Print(out);
}

void PrintConstraints(const v1::Constraints& constraints, std::ostream& out) {
  if (constraints.disabled()) {
    out << "disabled, everything is kept\n";
  } else {
    out << "limit " << (constraints.has_memory_limit_bytes() ? FormatLimit(constraints.memory_limit_bytes()) : "the agents' own");
    if (constraints.frozen_generation() != 0) out << ", frozen at generation " << constraints.frozen_generation();
    out << "\n";
  }
  for (const v1::Pin& pin : constraints.pins()) {
    out << "  " << ActionName(pin.action()) << " " << (pin.label_glob().empty() ? "*" : pin.label_glob()) << " in "
        << (pin.block_glob().empty() ? "*" : pin.block_glob()) << "\n";
  }
}

void PrintJob(const v1::GetJobResponse& job, bool wide, std::ostream& out) {
  const v1::JobSummary& summary = job.summary();
  out << "job          " << summary.job() << "\n"
      << "state        " << StateName(summary.state());
  if (!summary.waiting_for().empty()) out << ", waits for " << summary.waiting_for();
  if (!summary.end_reason().empty()) out << ": " << summary.end_reason();
  out << "\nranks        " << summary.connected_ranks() << " of " << summary.world_size() << " connected\n"
      << "runs on      " << TextOrNone(job.device()) << (job.torch_version().empty() ? "" : ", torch " + job.torch_version())
      << "\n"
      << "limit        " << FormatLimit(summary.memory_limit_bytes()) << "\n"
      << "generation   " << summary.generation() << "\n"
      << "step peak    " << BytesOrNone(summary.step_peak_bytes()) << ", predicted " << BytesOrNone(summary.predicted_peak_bytes())
      << " (" << ResidualText(summary) << ")\n"
      << "replay       " << FormatSeconds(summary.replay_seconds()) << ", predicted "
      << FormatSeconds(summary.predicted_replay_seconds()) << "\nasked        ";
  PrintConstraints(job.constraints(), out);
  out << "\n";
  std::vector<std::string> header = {"RANK", "NODE", "CONNECTED", "PLAN", "STEP", "STEP TIME", "PEAK", "REPLAY", "HEARD"};
  if (wide)
    header.insert(header.end(), {"SAVED", "HELD PLAN", "REPORTS", "OPS REPLAYED", "OPS DEMOTED", "AGENT TIME", "GATHER", "REDUCE",
                                 "PACING", "CANNOT FOLLOW"});
  Table table(header);
  for (const v1::RankStatus& rank : job.ranks()) {
    const v1::StepReport& report = rank.last_report();
    std::vector<std::string> row = {absl::StrCat(rank.rank()),
                                    TextOrNone(rank.node()),
                                    rank.connected() ? "yes" : "no",
                                    absl::StrCat(rank.active_generation()),
                                    absl::StrCat(report.step()),
                                    FormatSeconds(report.step_seconds()),
                                    BytesOrNone(report.step_peak_bytes()),
                                    FormatSeconds(report.replay_seconds()),
                                    absl::StrFormat("%.0f s ago", rank.silent_seconds())};
    if (wide) {
      row.insert(
          row.end(),
          {BytesOrNone(report.saved_bytes()), absl::StrCat(rank.held_generation()), absl::StrCat(rank.reports()),
           absl::StrCat(report.replayed_ops()), absl::StrCat(report.demoted_ops()), FormatSeconds(report.agent_seconds()),
           CollectiveSeconds(report, &v1::CollectiveReport::gather_seconds),
           CollectiveSeconds(report, &v1::CollectiveReport::reduce_seconds),
           report.has_collectives() ? absl::StrCat(report.collectives().pacing_generation()) : "-", TextOrNone(rank.plan_error())});
    }
    table.Add(row);
  }
  table.Print(out);
}

void PrintPlans(const v1::ListPlansResponse& plans, bool wide, std::ostream& out) {
  std::vector<std::string> header = {"GENERATION", "COMMITTED", "LIMIT", "STEP PEAK", "SAVED", "REPLAY", "GAP", "REASON"};
  if (wide) header.insert(header.end(), {"REPEATS", "INCARNATION", "ETAG"});
  Table table(header);
  for (const v1::Plan& plan : plans.plans()) {
    std::vector<std::string> row = {
        absl::StrCat(plan.generation()),
        absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMicros(plan.committed_unix_micros()), absl::UTCTimeZone()),
        FormatLimit(plan.memory_limit_bytes()),
        FormatBytes(plan.step_peak_bytes()),
        FormatBytes(plan.saved_bytes()),
        FormatSeconds(plan.replay_seconds()),
        absl::StrFormat("%.3g %%", 100 * plan.gap_ratio()),
        plan.reason()};
    if (wide) {
      row.insert(row.end(),
                 {plan.repeats_generation() == 0 ? "-" : absl::StrCat(plan.repeats_generation()), plan.incarnation(), plan.etag()});
    }
    table.Add(row);
  }
  table.Print(out);
}

void PrintStepMemory(const v1::GetStepMemoryResponse& memory, std::ostream& out) {
  out << "predicted    " << FormatBytes(memory.predicted_step_peak_bytes()) << " at the step's peak, by generation "
      << memory.generation() << "\n";
  if (memory.has_measured_rank()) {
    out << "measured     " << FormatBytes(memory.measured_step_peak_bytes()) << " at the peak of step " << memory.measured_step()
        << ", rank " << memory.measured_rank() << " on " << TextOrNone(memory.measured_node()) << ", under generation "
        << memory.measured_generation() << "\n";
  }
  out << "\n";
  Table table({"PART OF THE STEP", "PREDICTED PEAK", "MEASURED AT BEGIN", "AT END"});
  for (const v1::IntervalMemory& part : memory.intervals()) {
    const auto measured = [](bool has, int64_t bytes) { return has ? FormatBytes(bytes) : std::string("-"); };
    table.Add({HolderText(part.place()), FormatBytes(part.predicted_peak_bytes()),
               measured(part.has_measured_begin_bytes(), part.measured_begin_bytes()),
               measured(part.has_measured_end_bytes(), part.measured_end_bytes())});
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
      << "step peak    " << PeakText(plan) << " in " << HolderText(plan.peak_holder()) << "\n"
      << "least peak   " << FormatBytes(plan.least_peak_bytes()) << " in " << HolderText(plan.least_peak_holder()) << "\n"
      << "saved        " << FormatBytes(plan.saved_bytes()) << "\n";
  if (plan.moved_bytes() > 0) {
    out << "moved        " << FormatBytes(plan.moved_bytes()) << " to host memory and back, " << FormatSeconds(plan.move_seconds())
        << "\n";
  }
  out << "replay       " << FormatSeconds(plan.replay_seconds()) << ", at least " << FormatSeconds(plan.lower_bound_seconds())
      << absl::StrFormat(" (gap %.3g %%)\n", 100 * plan.gap_ratio());
  if (plan.has_pacing()) {
    out << "collectives  " << PacingText(plan.pacing()) << "; gathering all units once takes "
        << FormatSeconds(plan.pacing().gather_seconds()) << "\n"
        << "  advised    prefetch " << plan.pacing().prefetch_depth() << " ahead, " << plan.pacing().staging_slots()
        << " staging slots, staging in vacated slots: " << (plan.pacing().slot_reuse() ? "yes" : "no") << "\n";
  }
  out << "\n";
  std::vector<std::string> header = {"BLOCK", "NAME", "SAVED", "REPLAY", "OWN PEAK", "VALUES KEPT", "OPS REPLAYED"};
  if (plan.moved_bytes() > 0) header.push_back("MOVED");
  Table table(header);
  for (const v1::BlockPlan& block : plan.blocks()) {
    std::vector<std::string> row = {absl::StrCat(block.block()),         block.name(),
                                    FormatBytes(block.saved_bytes()),    FormatSeconds(block.replay_seconds()),
                                    FormatBytes(block.own_peak_bytes()), KeptText(block),
                                    absl::StrCat(block.replayed_size())};
    if (plan.moved_bytes() > 0) row.push_back(FormatBytes(block.moved_bytes()));
    table.Add(row);
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
      << FormatBytes(job.step_peak_bytes()) << " (" << ResidualText(job) << ")  step time " << FormatSeconds(job.step_seconds())
      << "  replay " << FormatSeconds(job.replay_seconds());
  if (!job.waiting_for().empty()) out << "  waits for " << job.waiting_for();
  out << std::endl;
}

}  // namespace tidetape::ctl
