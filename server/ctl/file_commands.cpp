#include "server/ctl/file_commands.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "planner/io/plan_json.h"
#include "planner/io/problem_io.h"
#include "planner/job/merge_ranks.h"
#include "planner/job/site_plan.h"
#include "planner/planner.h"
#include "server/ctl/frontier_svg.h"
#include "server/text/units.h"

namespace tidetape::ctl {
namespace {

// The tape that the frontier is asked of.
absl::StatusOr<const planner::BlockTape*> ChooseTape(const planner::PlanningProblem& problem, std::optional<int32_t> block) {
  if (!block.has_value()) {
    if (problem.tapes.size() == 1) return &problem.tapes[0];
    return absl::InvalidArgumentError(absl::StrCat("the problem has ", problem.tapes.size(), " tapes; name a block with --block"));
  }
  if (*block < 0 || static_cast<size_t>(*block) >= problem.blocks.size()) {
    return absl::InvalidArgumentError(absl::StrCat("no block ", *block, "; the problem has ", problem.blocks.size(), " blocks"));
  }
  const planner::BlockInstance& instance = problem.blocks[*block];
  if (!instance.options.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("block ", *block, " (", instance.name, ") has options instead of a tape"));
  }
  if (instance.tape < 0 || static_cast<size_t>(instance.tape) >= problem.tapes.size()) {
    return absl::InvalidArgumentError(absl::StrCat("blocks[", *block, "].tape = ", instance.tape, " is not a tape"));
  }
  return &problem.tapes[instance.tape];
}

}  // namespace

absl::Status InFile(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

absl::Status WriteFile(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  file.close();
  return file ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("cannot write ", path));
}

absl::StatusOr<planner::PlanningProblem> ReadProblem(const std::string& path, std::optional<int64_t> memory_limit_bytes) {
  auto problem = planner::ReadProblemFile(path);
  if (problem.ok() && memory_limit_bytes.has_value()) {
    problem->memory_limit_bytes = planner::LimitForPlanner(*memory_limit_bytes);
  }
  return problem;
}

absl::Status SolveFile(const std::string& path, std::optional<int64_t> memory_limit_bytes, const planner::Effort& effort,
                       const OutputFormat& format, std::ostream& out) {
  const auto problem = ReadProblem(path, memory_limit_bytes);
  if (!problem.ok()) return problem.status();
  const auto plan = planner::PlanStepClosely(*problem, effort);
  if (!plan.ok()) return InFile(path, plan.status());
  if (format.json()) {
    out << planner::StepPlanJson(*plan) << "\n";
  } else {
    PrintPlan(planner::ToProto(*problem, *plan), out);
  }
  if (plan->feasible) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(path, ": no plan keeps memory_limit_bytes = ", problem->memory_limit_bytes,
                                                    "; the least step peak is ", plan->least_peak_bytes, " bytes, in ",
                                                    planner::DescribePeakHolder(*problem, plan->least_peak_holder),
                                                    "; set the limit to that or more, or give \"min\""));
}

absl::Status PrintFileFrontier(const std::string& path, std::optional<int32_t> block, const std::string& svg,
                               const OutputFormat& format, std::ostream& out) {
  const auto problem = planner::ReadProblemFile(path);
  if (!problem.ok()) return problem.status();
  const auto tape = ChooseTape(*problem, block);
  if (!tape.ok()) return InFile(path, tape.status());
  const auto hull = planner::BlockFrontier(**tape);
  if (!hull.ok()) return InFile(path, hull.status());
  FrontierPicture picture;
  picture.title = absl::StrCat("Frontier of ", (*tape)->name.empty() ? path : (*tape)->name);
  picture.bytes_axis = "saved per block";
  for (const auto& point : *hull) *picture.points.Add() = planner::ToProto(point);
  if (!svg.empty()) {
    if (absl::Status status = WriteFile(svg, FrontierSvg(picture)); !status.ok()) return status;
  }
  if (format.json()) {
    out << planner::BlockFrontierJson(*hull) << "\n";
    return absl::OkStatus();
  }
  PrintHull(picture.points, out);
  return absl::OkStatus();
}

absl::Status PrintFastestBlockPlan(const std::string& path, std::optional<int32_t> block, int64_t saved_bytes_limit,
                                   const planner::Effort& effort, const OutputFormat& format, std::ostream& out) {
  const auto problem = planner::ReadProblemFile(path);
  if (!problem.ok()) return problem.status();
  const auto tape = ChooseTape(*problem, block);
  if (!tape.ok()) return InFile(path, tape.status());
  const auto fastest = planner::FastestBlockPlan(**tape, saved_bytes_limit, effort);
  if (!fastest.ok()) return InFile(path, fastest.status());
  if (format.json()) {
    out << planner::BoundedPointJson(*fastest);
    return absl::OkStatus();
  }
  out << "saved        " << FormatBytes(fastest->point.bytes) << " in " << fastest->point.saved.size() << " storages\n"
      << "replay       " << FormatSeconds(fastest->point.replay_seconds) << " (at least "
      << FormatSeconds(fastest->lower_bound_seconds) << ")\n";
  return absl::OkStatus();
}

}  // namespace tidetape::ctl
