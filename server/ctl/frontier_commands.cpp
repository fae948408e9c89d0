#include "server/ctl/frontier_commands.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "server/ctl/ask.h"
#include "server/ctl/file_commands.h"
#include "server/ctl/frontier_svg.h"
#include "server/ctl/target.h"

namespace tidetape::ctl {
namespace {

using Stub = v1::PlannerService::Stub;

absl::Status OfFile(const Arguments& arguments, std::ostream& out) {
  if (arguments.within.empty()) return PrintFileFrontier(arguments.file, arguments.block, arguments.svg, arguments.output, out);
  const auto bytes = ParseBytes(arguments.within);
  if (!bytes.ok()) return bytes.status();
  return PrintFastestBlockPlan(arguments.file, arguments.block, *bytes, EffortOf(arguments), arguments.output, out);
}

// The fastest plan of one block within so many bytes.
absl::Status PlanWithin(const Arguments& arguments, std::ostream& out) {
  if (!arguments.block.has_value()) return absl::InvalidArgumentError("--within asks one block of the job: name it with --block");
  const auto bytes = ParseBytes(arguments.within);
  if (!bytes.ok()) return bytes.status();
  v1::FindBlockPlanRequest request;
  if (absl::Status status = FillRequest(arguments, request); !status.ok()) return status;
  request.set_block(*arguments.block);
  request.set_saved_bytes_limit(*bytes);
  return Ask(arguments, &Stub::FindBlockPlan, request, out, [&](const v1::FindBlockPlanResponse& response) {
    out << "saved        " << FormatBytes(response.point().bytes()) << " in " << response.point().saved_size() << " storages\n"
        << "replay       " << FormatSeconds(response.point().replay_seconds()) << " (at least "
        << FormatSeconds(response.lower_bound_seconds()) << ")\n";
  });
}

absl::Status WritePicture(const Arguments& arguments, const v1::GetFrontierResponse& frontier) {
  FrontierPicture picture;
  picture.points = frontier.points();
  if (frontier.has_current()) picture.current = frontier.current();
  if (arguments.block.has_value()) {
    picture.title = absl::StrCat("Frontier of block ", *arguments.block, " of ", arguments.job);
    picture.bytes_axis = "saved per block";
  } else {
    picture.title = absl::StrCat("Frontier of ", arguments.job);
    picture.bytes_axis = "step peak";
    picture.limit_bytes = frontier.memory_limit_bytes();
  }
  return WriteFile(arguments.svg, FrontierSvg(picture));
}

absl::Status OfJob(const Arguments& arguments, std::ostream& out) {
  v1::GetFrontierRequest request;
  request.set_job(arguments.job);
  if (arguments.block.has_value()) request.set_block(*arguments.block);
  const auto response = MakeClient(arguments).Call(&Stub::GetFrontier, request);
  if (!response.ok()) return response.status();
  if (!arguments.svg.empty()) {
    if (absl::Status status = WritePicture(arguments, *response); !status.ok()) return status;
  }
  if (arguments.output.json()) {
    out << ToJson(*response, arguments.output);
  } else {
    PrintFrontier(*response, arguments.block.has_value(), out);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Frontier(const Arguments& arguments, std::ostream& out) {
  if (absl::Status status = CheckTarget(arguments); !status.ok()) return status;
  if (!arguments.file.empty()) return OfFile(arguments, out);
  return arguments.within.empty() ? OfJob(arguments, out) : PlanWithin(arguments, out);
}

absl::Status StepFrontier(const Arguments& arguments, std::ostream& out) {
  if (absl::Status status = CheckTarget(arguments); !status.ok()) return status;
  if (arguments.file.empty()) return OfJob(arguments, out);
  const auto question = QuestionOf(arguments);
  return question.ok() ? PrintStepFrontier(*question, arguments.svg, out) : question.status();
}

}  // namespace tidetape::ctl
