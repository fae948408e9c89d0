#include "server/ctl/change_commands.h"

#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/text/units.h"

namespace tidetape::ctl {
namespace {

using Stub = v1::PlannerService::Stub;

// Changes that others may make in between before a command gives up.
constexpr int kAttempts = 5;

// Changes the constraints that are in force.
using Edit = std::function<absl::Status(const v1::GetJobResponse& job, v1::Constraints& constraints)>;

absl::Status ChangeConstraints(const Arguments& arguments, Client& client, const Edit& edit, std::ostream& out) {
  absl::StatusOr<v1::SetConstraintsResponse> answer;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    v1::GetJobRequest ask;
    ask.set_job(arguments.job);
    const auto job = client.Call(&Stub::GetJob, ask);
    if (!job.ok()) return job.status();
    v1::SetConstraintsRequest request;
    request.set_job(arguments.job);
    request.set_etag(job->constraints_etag());
    *request.mutable_constraints() = job->constraints();
    if (absl::Status status = edit(*job, *request.mutable_constraints()); !status.ok()) return status;
    answer = client.Call(&Stub::SetConstraints, request);
    if (!absl::IsAborted(answer.status())) break;
  }
  if (!answer.ok()) return answer.status();
  if (arguments.output.json()) {
    out << ToJson(*answer, arguments.output);
  } else {
    out << arguments.job << ": ";
    PrintConstraints(answer->constraints(), out);
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Plan> CommittedPlan(const std::string& job, Client& client) {
  v1::GetPlanRequest request;
  request.set_job(job);
  const auto response = client.Call(&Stub::GetPlan, request);
  if (!response.ok()) return response.status();
  return response->plan();
}

// The newest plan before the one in force, and other than that.
absl::StatusOr<int64_t> GenerationBefore(const std::string& job, Client& client) {
  v1::ListPlansRequest request;
  request.set_job(job);
  const auto response = client.Call(&Stub::ListPlans, request);
  if (!response.ok()) return response.status();
  for (const v1::Plan& plan : response->plans()) {
    if (plan.etag() == response->plans(0).etag()) continue;
    return plan.repeats_generation() != 0 ? plan.repeats_generation() : plan.generation();
  }
  return absl::FailedPreconditionError(absl::StrCat("job '", job, "' has no earlier plan that differs from the one in force"));
}

// Why keeping everything would break the job; OK where it would not.
absl::Status CheckThatAllFits(const v1::GetJobResponse& job, Client& client) {
  const int64_t limit = job.summary().memory_limit_bytes();
  if (limit < 0) return absl::OkStatus();
  const auto complain = [&job](const std::string& why) {
    return absl::FailedPreconditionError(
        absl::StrCat("without Tidetape job '", job.summary().job(), "' ", why, "; --force disables it all the same"));
  };
  v1::SimulatePlanRequest request;
  request.set_job(job.summary().job());
  request.set_memory_limit_bytes(-1);
  const auto answer = client.Call(&Stub::SimulatePlan, request);
  if (!answer.ok()) return complain(absl::StrCat("needs an unknown amount of memory (", answer.status().message(), ")"));
  const int64_t peak = answer->plan().step_peak_bytes();
  // With the least-memory plan as limit nobody has said how much there is.
  if (limit == 0) return complain(absl::StrCat("reaches ", FormatBytes(peak), ", and nobody has said how much it may"));
  if (peak <= limit) return absl::OkStatus();
  return complain(absl::StrCat("reaches ", FormatBytes(peak), ", above its limit of ", FormatBytes(limit)));
}

}  // namespace

absl::Status SetLimit(const Arguments& arguments, std::ostream& out) {
  std::optional<int64_t> limit;
  if (arguments.memory_limit != "own") {
    const auto parsed = ParseLimit(arguments.memory_limit);
    if (!parsed.ok())
      return absl::InvalidArgumentError(absl::StrCat(parsed.status().message(), ", or \"own\" for the agents' own limit"));
    limit = *parsed;
  }
  Client client = MakeClient(arguments);
  return ChangeConstraints(
      arguments, client,
      [&limit](const v1::GetJobResponse&, v1::Constraints& constraints) {
        constraints.clear_memory_limit_bytes();
        if (limit.has_value()) constraints.set_memory_limit_bytes(*limit);
        return absl::OkStatus();
      },
      out);
}

absl::Status PinValues(const Arguments& arguments, std::ostream& out) {
  const bool globs = !arguments.block_glob.empty() || !arguments.value_glob.empty();
  if (arguments.clear ? (globs || arguments.save || arguments.replay) : (!globs || arguments.save == arguments.replay)) {
    return absl::InvalidArgumentError("name values with --block or --value and say --save or --replay, or say --clear alone");
  }
  Client client = MakeClient(arguments);
  return ChangeConstraints(
      arguments, client,
      [&arguments](const v1::GetJobResponse&, v1::Constraints& constraints) {
        if (arguments.clear) {
          constraints.clear_pins();
          return absl::OkStatus();
        }
        v1::Pin* pin = constraints.add_pins();
        pin->set_block_glob(arguments.block_glob);
        pin->set_label_glob(arguments.value_glob);
        pin->set_action(arguments.save ? v1::ACTION_SAVE : v1::ACTION_REPLAY);
        return absl::OkStatus();
      },
      out);
}

absl::Status Freeze(const Arguments& arguments, std::ostream& out) {
  Client client = MakeClient(arguments);
  return ChangeConstraints(
      arguments, client,
      [&](const v1::GetJobResponse&, v1::Constraints& constraints) {
        const auto plan = CommittedPlan(arguments.job, client);
        if (!plan.ok()) return plan.status();
        constraints.set_frozen_generation(plan->generation());
        return absl::OkStatus();
      },
      out);
}

absl::Status Rollback(const Arguments& arguments, std::ostream& out) {
  Client client = MakeClient(arguments);
  return ChangeConstraints(
      arguments, client,
      [&](const v1::GetJobResponse&, v1::Constraints& constraints) {
        const absl::StatusOr<int64_t> generation =
            arguments.generation.has_value() ? *arguments.generation : GenerationBefore(arguments.job, client);
        if (!generation.ok()) return generation.status();
        constraints.set_frozen_generation(*generation);
        constraints.set_disabled(false);
        return absl::OkStatus();
      },
      out);
}

absl::Status Disable(const Arguments& arguments, std::ostream& out) {
  Client client = MakeClient(arguments);
  return ChangeConstraints(
      arguments, client,
      [&](const v1::GetJobResponse& job, v1::Constraints& constraints) {
        constraints.set_disabled(true);
        return arguments.force ? absl::OkStatus() : CheckThatAllFits(job, client);
      },
      out);
}

absl::Status Resume(const Arguments& arguments, std::ostream& out) {
  Client client = MakeClient(arguments);
  return ChangeConstraints(
      arguments, client,
      [](const v1::GetJobResponse&, v1::Constraints& constraints) {
        constraints.set_disabled(false);
        constraints.set_frozen_generation(0);
        return absl::OkStatus();
      },
      out);
}

absl::Status End(const Arguments& arguments, std::ostream& out) {
  v1::EndJobRequest request;
  request.set_job(arguments.job);
  const auto response = MakeClient(arguments).Call(&Stub::EndJob, request);
  if (!response.ok()) return response.status();
  if (arguments.output.json()) {
    out << ToJson(*response, arguments.output);
  } else {
    out << response->summary().job() << ": " << response->summary().end_reason() << "\n";
  }
  return absl::OkStatus();
}

}  // namespace tidetape::ctl
