#include "server/ctl/ask_commands.h"

#include <string>

#include "absl/strings/str_cat.h"

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
