#include "server/auth/rights.h"

#include <fnmatch.h>

#include "absl/strings/str_cat.h"
#include "net/error_info.h"

namespace tidetape::server {
namespace {

const char* NameOf(Role role) {
  switch (role) {
    case Role::kAgent:
      return "an agent";
    case Role::kReader:
      return "a reader";
    case Role::kOperator:
      return "an operator";
  }
  return "nobody";
}

bool HasRight(const Principal& who, Right right, const std::string& job) {
  if (who.role == Role::kOperator) return true;
  if (who.role == Role::kReader) return right == Right::kAsk || right == Right::kList;
  if (right != Right::kReport && right != Right::kAsk) return false;
  return (job.empty() && right == Right::kReport) || fnmatch(who.jobs.c_str(), job.c_str(), 0) == 0;
}

}  // namespace

absl::Status CheckRight(const Principal& who, Right right, const std::string& job) {
  if (HasRight(who, right, job)) return absl::OkStatus();
  std::string message = absl::StrCat("'", who.name, "' is ", NameOf(who.role));
  if (who.role == Role::kAgent && (right == Right::kReport || right == Right::kAsk)) {
    absl::StrAppend(&message, " of the jobs '", who.jobs, "', not of '", job, "'");
  } else if (right == Right::kReport) {
    absl::StrAppend(&message, "; reporting takes the token of an agent");
  } else if (right == Right::kChange) {
    absl::StrAppend(&message, "; changing a job takes the token of an operator");
  } else {
    absl::StrAppend(&message, "; this takes the token of a reader or an operator");
  }
  return net::WithErrorInfo(absl::PermissionDeniedError(message), "RIGHT_MISSING", {{"name", who.name}});
}

}  // namespace tidetape::server
