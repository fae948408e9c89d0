#include "server/ctl/ask_commands.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "server/ctl/file_commands.h"
#include "server/ctl/frontier_svg.h"
#include "server/units.h"

namespace tidetape::ctl {
namespace {

using Stub = v1::PlannerService::Stub;

// Prints a response as JSON, or with `as_text`.
template <typename Response, typename AsText>
absl::Status Print(const absl::StatusOr<Response>& response, const OutputFormat& format, std::ostream& out, AsText as_text) {
  if (!response.ok()) return response.status();
  if (format.json()) {
    out << ToJson(*response, format);
  } else {
    as_text(*response);
  }
  return absl::OkStatus();
}

template <typename Request>
Request ForJob(const Arguments& arguments) {
  Request request;
  request.set_job(arguments.job);
  return request;
}

}  // namespace

absl::Status Jobs(const Arguments& arguments, std::ostream& out) {
  return Print(MakeClient(arguments).Call(&Stub::ListJobs, v1::ListJobsRequest()), arguments.output, out,
               [&](const auto& response) { PrintJobs(response, arguments.output.wide(), out); });
}

absl::Status ShowJob(const Arguments& arguments, std::ostream& out) {
  return Print(MakeClient(arguments).Call(&Stub::GetJob, ForJob<v1::GetJobRequest>(arguments)), arguments.output, out,
               [&](const auto& response) { PrintJob(response, arguments.output.wide(), out); });
}

absl::Status Plan(const Arguments& arguments, std::ostream& out) {
  auto request = ForJob<v1::GetPlanRequest>(arguments);
  if (arguments.generation.has_value()) request.set_generation(*arguments.generation);
  return Print(MakeClient(arguments).Call(&Stub::GetPlan, request), arguments.output, out,
               [&](const auto& response) { PrintPlan(response.plan(), out); });
}

absl::Status Plans(const Arguments& arguments, std::ostream& out) {
  return Print(MakeClient(arguments).Call(&Stub::ListPlans, ForJob<v1::ListPlansRequest>(arguments)), arguments.output, out,
               [&](const auto& response) { PrintPlans(response, arguments.output.wide(), out); });
}

absl::Status Problem(const Arguments& arguments, std::ostream& out) {
  const auto response = MakeClient(arguments).Call(&Stub::GetProblem, ForJob<v1::GetProblemRequest>(arguments));
  if (!response.ok()) return response.status();
  out << ToJson(response->problem(), OutputFormat{OutputFormat::kJson});
  return absl::OkStatus();
}

absl::Status Frontier(const Arguments& arguments, std::ostream& out) {
  if (arguments.file.empty() == arguments.job.empty()) return absl::InvalidArgumentError("name either a job or --file FILE");
  if (!arguments.within.empty()) {
    if (arguments.file.empty()) return absl::InvalidArgumentError("--within asks a problem file: name it with --file");
    const auto bytes = ParseBytes(arguments.within);
    if (!bytes.ok()) return bytes.status();
    return PrintFastestBlockPlan(arguments.file, arguments.block, *bytes, EffortOf(arguments), arguments.output, out);
  }
  if (!arguments.file.empty()) {
    return PrintFileFrontier(arguments.file, arguments.block, arguments.svg, arguments.output, out);
  }
  auto request = ForJob<v1::GetFrontierRequest>(arguments);
  if (arguments.block.has_value()) request.set_block(*arguments.block);
  const auto response = MakeClient(arguments).Call(&Stub::GetFrontier, request);
  if (response.ok() && !arguments.svg.empty()) {
    FrontierPicture picture;
    picture.points = response->points();
    if (response->has_current()) picture.current = response->current();
    if (arguments.block.has_value()) {
      picture.title = absl::StrCat("Frontier of block ", *arguments.block, " of ", arguments.job);
      picture.bytes_axis = "saved per block";
    } else {
      picture.title = absl::StrCat("Frontier of ", arguments.job);
      picture.bytes_axis = "step peak";
      picture.limit_bytes = response->memory_limit_bytes();
    }
    if (absl::Status status = WriteFile(arguments.svg, FrontierSvg(picture)); !status.ok()) return status;
  }
  return Print(response, arguments.output, out,
               [&](const auto& frontier) { PrintFrontier(frontier, arguments.block.has_value(), out); });
}

absl::Status Memory(const Arguments& arguments, std::ostream& out) {
  return Print(MakeClient(arguments).Call(&Stub::GetStepMemory, ForJob<v1::GetStepMemoryRequest>(arguments)), arguments.output, out,
               [&](const auto& response) { PrintStepMemory(response, out); });
}

absl::Status Explain(const Arguments& arguments, std::ostream& out) {
  auto request = ForJob<v1::ExplainPlanRequest>(arguments);
  if (arguments.block.has_value()) request.set_block(*arguments.block);
  return Print(MakeClient(arguments).Call(&Stub::ExplainPlan, request), arguments.output, out,
               [&](const auto& response) { PrintExplanation(response, out); });
}

absl::Status Simulate(const Arguments& arguments, std::ostream& out) {
  auto request = ForJob<v1::SimulatePlanRequest>(arguments);
  if (!arguments.memory_limit.empty()) {
    const auto limit = ParseLimit(arguments.memory_limit);
    if (!limit.ok()) return limit.status();
    request.set_memory_limit_bytes(*limit);
  }
  const auto additional = ParseBytes(arguments.additional_base);
  if (!additional.ok()) return additional.status();
  request.set_additional_base_bytes(*additional);
  return Print(MakeClient(arguments).Call(&Stub::SimulatePlan, request), arguments.output, out,
               [&](const auto& response) { PrintPlan(response.plan(), out); });
}

absl::Status Watch(const Arguments& arguments, std::ostream& out) {
  const OutputFormat lines{arguments.output.kind, /*one_line=*/true};
  return MakeClient(arguments).Watch(arguments.job, WatchTime(arguments), [&](const v1::WatchJobResponse& response) {
    if (lines.json()) {
      out << ToJson(response, lines) << std::flush;
    } else {
      PrintWatched(response, out);
    }
    return out.good();
  });
}

absl::Status JobNames(const Arguments& arguments, std::ostream& out) {
  Client client(arguments.connection.server, absl::Seconds(1), arguments.credentials);
  if (const auto jobs = client.Call(&Stub::ListJobs, v1::ListJobsRequest()); jobs.ok()) {
    for (const v1::JobSummary& job : jobs->jobs()) out << job.job() << "\n";
  }
  return absl::OkStatus();
}

}  // namespace tidetape::ctl
