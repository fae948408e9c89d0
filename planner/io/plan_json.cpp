#include "planner/io/plan_json.h"

#include <charconv>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tidetape::planner {
namespace {

// The shortest text that reads back as the same number.
std::string Number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof(text), value).ptr);
}

std::string List(const std::vector<int32_t>& values) { return absl::StrCat("[", absl::StrJoin(values, ", "), "]"); }

// Of a block or a step; nothing where it moves nothing.
template <typename Plan>
std::string MoveFields(const Plan& plan, const char* separator) {
  if (plan.moved_bytes == 0) return "";
  return absl::StrCat(separator, "\"moved_bytes\": ", plan.moved_bytes, separator, "\"move_seconds\": ", Number(plan.move_seconds));
}

// Nothing where nothing is held free.
std::string HeadroomField(const StepPlan& plan) {
  const int64_t bytes = plan.step_peak_bytes - plan.expected_peak_bytes;
  return bytes == 0 ? "" : absl::StrCat(",\n  \"headroom_bytes\": ", bytes);
}

std::string BlockJson(const BlockPlan& block) {
  return absl::StrCat("{\"saved\": ", List(block.saved), ", \"replayed\": ", List(block.replayed),
                      ", \"moved\": ", List(block.moved), ", \"saved_bytes\": ", block.saved_bytes,
                      ", \"replay_seconds\": ", Number(block.replay_seconds), ", \"own_peak_bytes\": ", block.own_peak_bytes,
                      MoveFields(block, ", "), block.option >= 0 ? absl::StrCat(", \"option\": ", block.option) : "", "}");
}

std::string PointFields(const FrontierPoint& point) {
  return absl::StrCat("\"saved_bytes\": ", point.bytes, ", \"replay_seconds\": ", Number(point.replay_seconds),
                      ", \"saved\": ", List(point.saved));
}

// A list with one entry a line.
template <typename Entries, typename Print>
std::string Lines(const Entries& entries, const std::string& indent, const Print& print) {
  if (entries.empty()) return "[]";
  const std::string body = absl::StrJoin(entries, absl::StrCat(",\n", indent, "  "),
                                         [&](std::string* out, const auto& entry) { out->append(print(entry)); });
  return absl::StrCat("[\n", indent, "  ", body, "\n", indent, "]");
}

}  // namespace

std::string StepPlanJson(const StepPlan& plan) {
  return absl::StrCat(
      "{\n  \"blocks\": ", Lines(plan.blocks, "  ", BlockJson), ",\n  \"step_peak_bytes\": ", plan.expected_peak_bytes,
      HeadroomField(plan), ",\n  \"replay_seconds\": ", Number(plan.replay_seconds), MoveFields(plan, ",\n  "),
      ",\n  \"lower_bound_seconds\": ", Number(plan.lower_bound_seconds), ",\n  \"gap_ratio\": ", Number(plan.gap_ratio),
      ",\n  \"feasible\": ", plan.feasible ? "true" : "false", "\n}\n");
}

std::string BlockFrontierJson(const std::vector<FrontierPoint>& points) {
  return Lines(points, "", [](const FrontierPoint& point) { return absl::StrCat("{", PointFields(point), "}"); }) + "\n";
}

std::string StepFrontierJson(const std::vector<FrontierPoint>& points) {
  return Lines(points, "",
               [](const FrontierPoint& point) {
                 return absl::StrCat("{\"step_peak_bytes\": ", point.bytes, ", \"replay_seconds\": ", Number(point.replay_seconds),
                                     "}");
               }) +
         "\n";
}

std::string BoundedPointJson(const BoundedPoint& bounded) {
  return absl::StrCat("{", PointFields(bounded.point), ", \"lower_bound_seconds\": ", Number(bounded.lower_bound_seconds), "}\n");
}

}  // namespace tidetape::planner
