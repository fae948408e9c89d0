// Questions about a problem file that need no server: what other ways to choose would give, what wishes cost, and the frontier of
// the step. A job's problem comes from `tidetapectl problem JOB`.
#ifndef TIDETAPE_SERVER_CTL_QUESTION_COMMANDS_H_
#define TIDETAPE_SERVER_CTL_QUESTION_COMMANDS_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "planner/planner.h"

namespace tidetape::ctl {

// What one question is asked of and with.
struct Question {
  std::string file;
  std::optional<int64_t> memory_limit_bytes;  // instead of the file's own
  planner::Effort effort;
  bool json = false;
};

// Full checkpointing, every other block, all matmuls kept, and two kinds of budget, each with its step peak and replay time, beside
// the planner's plan at the same step peak.
absl::Status ComparePolicies(const Question& question, std::ostream& out);

// The step's replay time against its peak. Writes a picture where `svg` is not empty.
absl::Status PrintStepFrontier(const Question& question, const std::string& svg, std::ostream& out);

// The plan in which what some ops make is saved or replayed, beside the one without such wishes. A wish is an op's name and maybe a
// block's, as patterns of a shell: "aten::*mm*", "aten::gelu@layers.1?".
absl::Status PriceWishes(const Question& question, const std::vector<std::string>& save, const std::vector<std::string>& replay,
                         std::ostream& out);

}  // namespace tidetape::ctl

#endif  // TIDETAPE_SERVER_CTL_QUESTION_COMMANDS_H_
