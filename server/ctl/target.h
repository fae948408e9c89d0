// What a question is asked of: a live job, or a problem file.
#ifndef TIDETAPE_SERVER_CTL_TARGET_H_
#define TIDETAPE_SERVER_CTL_TARGET_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/ctl/arguments.h"
#include "server/ctl/question_commands.h"
#include "server/text/units.h"

namespace tidetape::ctl {

// InvalidArgument unless just one of the two is named.
inline absl::Status CheckTarget(const Arguments& arguments) {
  if (arguments.file.empty() != arguments.job.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("name either a job or --file FILE");
}

// What is asked of a problem file.
inline absl::StatusOr<Question> QuestionOf(const Arguments& arguments) {
  Question question{.file = arguments.file, .effort = EffortOf(arguments), .json = arguments.output.json()};
  if (arguments.memory_limit.empty()) return question;
  const auto limit = ParseLimit(arguments.memory_limit);
  if (!limit.ok()) return limit.status();
  question.memory_limit_bytes = *limit;
  return question;
}

}  // namespace tidetape::ctl

#endif  // TIDETAPE_SERVER_CTL_TARGET_H_
