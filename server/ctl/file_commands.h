// The commands that need no server: they read a problem file and plan in this process.
#ifndef TIDETAPE_SERVER_CTL_FILE_COMMANDS_H_
#define TIDETAPE_SERVER_CTL_FILE_COMMANDS_H_

#include <optional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/planner.h"
#include "server/ctl/output.h"

namespace tidetape::ctl {

// The problem in the file, under its own limit or another, as the agents say it (-1: keep everything).
absl::StatusOr<planner::PlanningProblem> ReadProblem(const std::string& path, std::optional<int64_t> memory_limit_bytes);

// Prints the plan of the problem in the file, under its own limit or another. Where no plan keeps the limit, prints the one with
// the least step peak and returns FailedPrecondition, which names that peak and what holds it.
absl::Status SolveFile(const std::string& path, std::optional<int64_t> memory_limit_bytes, const planner::Effort& effort,
                       const OutputFormat& format, std::ostream& out);

// Prints the hull of one tape of the problem in the file, that of block `block` where given; a problem with several tapes needs
// one. Writes a picture where `svg` is not empty.
absl::Status PrintFileFrontier(const std::string& path, std::optional<int32_t> block, const std::string& svg,
                               const OutputFormat& format, std::ostream& out);

// Prints the fastest plan of that tape that saves at most so many bytes, and what bounds it.
absl::Status PrintFastestBlockPlan(const std::string& path, std::optional<int32_t> block, int64_t saved_bytes_limit,
                                   const planner::Effort& effort, const OutputFormat& format, std::ostream& out);

// The status with the file's name before its message.
absl::Status InFile(const std::string& path, const absl::Status& status);

// Writes a whole file.
absl::Status WriteFile(const std::string& path, const std::string& content);

}  // namespace tidetape::ctl

#endif  // TIDETAPE_SERVER_CTL_FILE_COMMANDS_H_
