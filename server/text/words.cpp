#include "server/text/words.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "server/text/units.h"

namespace tidetape {

std::string StateName(v1::JobSummary::State state) {
  return absl::AsciiStrToLower(absl::StripPrefix(v1::JobSummary::State_Name(state), "STATE_"));
}

std::string ActionName(v1::Action action) {
  if (action == v1::ACTION_UNSPECIFIED) return "-";
  return absl::AsciiStrToLower(absl::StripPrefix(v1::Action_Name(action), "ACTION_"));
}

std::string KeptText(const v1::BlockPlan& plan) {
  if (plan.option() >= 0 && !plan.option_label().empty()) return plan.option_label();
  if (plan.option() >= 0) return absl::StrCat("option ", plan.option());
  return absl::StrCat(plan.saved_size());
}

std::string HolderText(const v1::PeakHolder& holder) {
  const std::string phase = absl::AsciiStrToLower(absl::StripPrefix(v1::PeakHolder::Phase_Name(holder.phase()), "PHASE_"));
  return holder.name().empty() ? phase : absl::StrCat(phase, " of ", holder.name());
}

std::string PeakText(const v1::Plan& plan) {
  const std::string peak = FormatBytes(plan.step_peak_bytes());
  return plan.headroom_bytes() == 0 ? peak : absl::StrCat(peak, " and ", FormatBytes(plan.headroom_bytes()), " held free");
}

std::string PacingText(const v1::PacingPlan& pacing) {
  constexpr int32_t kUnbounded = 256;
  std::string text = absl::StrCat(pacing.algorithm() == v1::PacingPlan::ALGORITHM_RING ? "ring" : "recursive doubling",
                                  ", chunks of ", FormatBytes(pacing.chunk_bytes()));
  if (pacing.puts_in_flight() < kUnbounded) absl::StrAppend(&text, ", ", pacing.puts_in_flight(), " in flight");
  if (pacing.chunk_gap_seconds() > 0) absl::StrAppend(&text, ", ", FormatSeconds(pacing.chunk_gap_seconds()), " apart");
  return text;
}

std::string ResidualText(const v1::JobSummary& job) {
  return job.has_peak_residual_ratio() ? absl::StrFormat("%+.2f %%", 100 * job.peak_residual_ratio()) : "-";
}

}  // namespace tidetape
