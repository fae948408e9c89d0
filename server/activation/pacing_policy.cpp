#include "server/activation/pacing_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "planner/io/pacing_io.h"
#include "server/common/log.h"

namespace tidetape::server {
namespace {

// Rounds of measurements in a row.
constexpr int32_t kPatience = 2;

planner::PacingProblem ProblemOf(const planner::LinkReport& links, const v1::Plan& plan) {
  // Without a limit there is as much room as one likes.
  const int64_t limit = plan.memory_limit_bytes();
  return {links, limit > 0 ? std::max<int64_t>(0, limit - plan.step_peak_bytes() - plan.headroom_bytes()) : INT64_MAX};
}

// FNV-1a, as all etags.
std::string Hash(const v1::PacingPlan& pacing) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const unsigned char byte :
       absl::StrCat(pacing.algorithm(), " ", pacing.chunk_bytes(), " ", pacing.puts_in_flight(), " ", pacing.chunk_gap_seconds(),
                    " ", pacing.prefetch_depth(), " ", pacing.staging_slots(), " ", pacing.slot_reuse())) {
    hash = (hash ^ byte) * 0x100000001b3U;
  }
  return absl::StrCat(absl::Hex(hash, absl::kZeroPad16));
}

}  // namespace

std::string PacingPolicy::Reason(const std::optional<planner::LinkReport>& links, const v1::Plan& committed) {
  if (!links.has_value()) return "";
  const planner::PacingProblem problem = ProblemOf(*links, committed);
  const auto plan = planner::PlanPacing(problem);
  if (!plan.ok()) return "";
  if (!committed.has_pacing()) return "the links between all ranks were measured";
  const bool off = planner::WorthSwitching(problem, planner::FromProto(committed.pacing()), *plan);
  off_in_a_row_ = off ? off_in_a_row_ + 1 : 0;
  if (off_in_a_row_ < kPatience) return "";
  off_in_a_row_ = 0;
  return "another pacing of the collectives is predicted to be faster";
}

void PacingPolicy::Fill(const std::optional<planner::LinkReport>& links, const v1::Plan* committed, v1::Plan& plan) {
  const bool has_committed = committed != nullptr && committed->has_pacing();
  if (has_committed) *plan.mutable_pacing() = committed->pacing();
  if (links.has_value()) {
    const planner::PacingProblem problem = ProblemOf(*links, plan);
    const auto fresh = planner::PlanPacing(problem);
    if (!fresh.ok()) spdlog::warn("no pacing: {}", std::string(fresh.status().message()));
    if (fresh.ok() && (!has_committed || planner::WorthSwitching(problem, planner::FromProto(committed->pacing()), *fresh))) {
      *plan.mutable_pacing() = planner::ToProto(*fresh);
    }
  }
  if (plan.has_pacing()) plan.set_etag(absl::StrCat(plan.etag(), "-", Hash(plan.pacing())));
}

}  // namespace tidetape::server
