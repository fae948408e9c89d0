// The largest batch, or the longest sequence, that fits.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "net/error_info.h"
#include "planner/io/problem_io.h"
#include "planner/job/merge_ranks.h"
#include "planner/planner.h"
#include "planner/questions/size_fit.h"
#include "server/job/known_runs.h"
#include "server/job/pins.h"
#include "server/messages/plan_message.h"
#include "server/messages/validate.h"
#include "server/questions/job_queries.h"
#include "server/questions/run_sizes.h"

namespace tidetape::server {
namespace {

// Fits are not believed farther out than this.
constexpr int64_t kFarthest = 64;

// The runs of one axis, by their length along it.
struct Axis {
  size_t dimension = 0;
  std::map<int64_t, planner::SizedRun> runs;
};

// What the job itself has measured, and known runs that differ from it in one dimension alone. By the axis' name.
std::map<std::string, Axis> AxesOf(const PlanningInput& input, const std::vector<int64_t>& shape,
                                   const std::vector<v1::KnownRun>& known) {
  std::map<std::string, Axis> axes;
  for (const v1::KnownRun& run : known) {
    planner::PlanningProblem problem = planner::FromProto(run.problem());
    const std::vector<size_t> differing = Differences(LeadingShape(problem), shape);
    if (differing.size() != 1) continue;
    const std::string name = AxisName(shape, differing[0]);
    if (name.empty()) continue;
    Axis& axis = axes[name];
    axis.dimension = differing[0];
    const int64_t length = LeadingShape(problem)[differing[0]];
    // The newest of several comes first.
    axis.runs.try_emplace(length, planner::SizedRun{static_cast<double>(length), std::move(problem), run.plain_step_seconds()});
  }
  for (auto& [name, axis] : axes) {
    const int64_t length = shape[axis.dimension];
    axis.runs[length] = {static_cast<double>(length), *input.measured, input.plain_step_seconds};
  }
  return axes;
}

absl::Status OneSize(const Job& job, const std::vector<int64_t>& shape, const std::string& axis) {
  return net::WithErrorInfo(
      absl::FailedPreconditionError(
          absl::StrCat("job '", job.name(), "' was seen at one ", axis.empty() ? "size" : axis, " only",
                       shape.empty() ? "" : absl::StrCat(", [", absl::StrJoin(shape, ", "), "]"),
                       ": run it, or any job of the same blocks, device and torch version, at another one, and ask again")),
      "ONE_SIZE", {{"job", job.name()}});
}

// Plans steps of the job at other sizes.
class SizedPlans {
 public:
  SizedPlans(const PlanningInput& input, std::vector<int64_t> shape, size_t dimension, int64_t limit, const TimeLeft& time_left)
      : input_(input), shape_(std::move(shape)), dimension_(dimension), limit_(limit), time_left_(time_left) {}

  // `plain_seconds`: of the step without its replay; 0: unknown. Infeasible where nothing fits: the step peak is then above the
  // limit.
  absl::StatusOr<v1::SizedStep> At(int64_t size, planner::PlanningProblem problem, double plain_seconds) {
    if (time_left_() <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError("the answer takes longer than the caller waits; ask with a longer timeout");
    }
    problem.memory_limit_bytes = limit_;
    AddToBases(input_.residual_bytes, problem);
    if (!input_.constraints.disabled()) ApplyPins(input_.constraints.pins(), problem);
    const auto plan = planner::PlanStep(problem);
    if (!plan.ok()) return plan.status();
    std::vector<int64_t> shape = shape_;
    shape[dimension_] = size;
    v1::SizedStep step;
    step.set_size(size);
    step.set_tokens(Tokens(shape));
    step.set_step_peak_bytes(plan->step_peak_bytes);
    step.set_replay_seconds(plan->replay_seconds);
    if (plain_seconds > 0) {
      step.set_step_seconds(plain_seconds + plan->replay_seconds);
      step.set_seconds_per_token(step.step_seconds() / static_cast<double>(step.tokens()));
    }
    return step;
  }

  bool Fits(const v1::SizedStep& step) const { return step.step_peak_bytes() <= limit_; }

 private:
  const PlanningInput& input_;
  const std::vector<int64_t> shape_;
  const size_t dimension_;
  const int64_t limit_;
  const TimeLeft& time_left_;
};

// The largest size up to `farthest` whose step fits; no size set where not even 1 does.
absl::StatusOr<v1::SizedStep> Search(const planner::SizeFit& fit, int64_t begin, int64_t farthest, SizedPlans& plans) {
  const auto at = [&](int64_t size) {
    return plans.At(size, fit.At(static_cast<double>(size)), fit.PlainStepSeconds(static_cast<double>(size)));
  };
  v1::SizedStep best;
  int64_t fits = 0, too_large = farthest + 1;
  // Twice as far each time, then in halves.
  for (int64_t size = begin; fits + 1 < too_large;) {
    const auto step = at(size);
    if (!step.ok()) return step.status();
    if (plans.Fits(*step)) {
      best = *step;
      fits = size;
    } else {
      too_large = size;
    }
    size = too_large > farthest ? std::min(2 * fits, farthest) : fits + (too_large - fits) / 2;
  }
  return best;
}

std::string Basis(const planner::SizeFit& fit, size_t runs, const std::string& axis, const v1::FindLargestSizeResponse& response) {
  std::string text = absl::StrCat("bytes and costs of every value and op fitted by ", fit.degree() == 1 ? "lines" : "parabolas",
                                  " through ", runs, " sizes of ", axis);
  if (response.has_bytes_residual_ratio()) {
    absl::StrAppendFormat(&text, ", %.2g %% of all bytes and %.2g %% of all seconds off what was measured",
                          100 * response.bytes_residual_ratio(), 100 * response.seconds_residual_ratio());
  } else {
    absl::StrAppend(&text, ", too few to say how far they are off; one more size would");
  }
  if (response.extrapolated()) absl::StrAppend(&text, "; the answer lies beyond what was measured");
  return text;
}

}  // namespace

absl::StatusOr<v1::FindLargestSizeResponse> AnswerFindLargestSize(Job& job, const v1::FindLargestSizeRequest& request,
                                                                  const TimeLeft& time_left) {
  const auto input = job.PeekPlanningInput();
  if (!input.ok()) return input.status();
  int64_t limit = input->problem.memory_limit_bytes;
  if (request.has_memory_limit_bytes()) limit = planner::LimitForPlanner(request.memory_limit_bytes());
  if (limit <= 0 || limit == planner::kUnlimitedBytes) {
    return net::WithErrorInfo(absl::InvalidArgumentError("what fits depends on a limit in bytes; name one"), "INVALID_FIELD",
                              {{"job", job.name()}, {"field", "memory_limit_bytes"}});
  }
  if (!request.axis().empty() && request.axis() != "batch" && request.axis() != "sequence" && request.axis() != "rows") {
    return net::WithErrorInfo(
        absl::InvalidArgumentError(absl::StrCat("no axis '", request.axis(), "'; use batch, sequence or rows")), "INVALID_FIELD",
        {{"job", job.name()}, {"field", "axis"}});
  }
  const std::vector<int64_t> shape = LeadingShape(*input->measured);
  if (shape.empty()) return OneSize(job, shape, request.axis());
  const auto known = job.KnownRuns(*input);
  if (!known.ok()) return known.status();
  std::map<std::string, Axis> axes = AxesOf(*input, shape, *known);
  if (!request.axis().empty()) std::erase_if(axes, [&](const auto& entry) { return entry.first != request.axis(); });
  if (axes.empty()) return OneSize(job, shape, request.axis());
  // The one that most is known of.
  auto chosen = std::max_element(axes.begin(), axes.end(),
                                 [](const auto& a, const auto& b) { return a.second.runs.size() < b.second.runs.size(); });

  v1::FindLargestSizeResponse response;
  response.set_axis(chosen->first);
  response.set_memory_limit_bytes(limit);
  SizedPlans plans(*input, shape, chosen->second.dimension, limit, time_left);
  std::vector<planner::SizedRun> runs;
  for (const auto& [size, run] : chosen->second.runs) {
    const auto step = plans.At(size, run.problem, run.plain_step_seconds);
    if (!step.ok()) return step.status();
    *response.add_measured() = *step;
    runs.push_back(run);
  }
  const int64_t largest_measured = chosen->second.runs.rbegin()->first;
  const size_t count = runs.size();
  const auto fit = planner::SizeFit::Create(std::move(runs));
  if (!fit.ok()) return fit.status();
  const auto largest = Search(*fit, largest_measured, kFarthest * largest_measured, plans);
  if (!largest.ok()) return largest.status();
  if (largest->size() > 0) *response.mutable_largest() = *largest;
  response.set_extrapolated(largest->size() > largest_measured);
  response.set_degree(fit->degree());
  if (const auto residual = fit->bytes_residual(); residual.has_value()) response.set_bytes_residual_ratio(*residual);
  if (const auto residual = fit->seconds_residual(); residual.has_value()) response.set_seconds_residual_ratio(*residual);
  response.set_basis(Basis(*fit, count, chosen->first, response));
  return response;
}

}  // namespace tidetape::server
