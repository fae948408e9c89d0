#include "server/http/job_charts.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/text/chart.h"
#include "server/text/markup.h"
#include "server/text/units.h"
#include "server/text/words.h"

namespace tidetape::server {
namespace {

constexpr double kWideWidth = 1040, kWideHeight = 380;
// Of a phone's screen, less the page's margins.
constexpr double kNarrowWidth = 340, kNarrowHeight = 280;

std::string BothWidths(Chart chart, const std::string& caption) {
  chart.width = kWideWidth;
  chart.height = kWideHeight;
  const std::string wide = ChartSvg(chart);
  chart.width = kNarrowWidth;
  chart.height = kNarrowHeight;
  return absl::StrCat("<figure class=\"wide\">\n", wide, "</figure>\n<figure class=\"narrow\">\n", ChartSvg(chart),
                      "</figure>\n<p class=\"note\">", caption, "</p>\n");
}

ChartPoint PointOf(const v1::FrontierPoint& point) {
  return {static_cast<double>(point.bytes()), point.replay_seconds(),
          absl::StrCat(FormatBytes(point.bytes()), ", ", FormatSeconds(point.replay_seconds()))};
}

// The parts of the step get one place each on the axis, from 0; these are named.
std::vector<std::pair<double, std::string>> PlacesOf(const v1::GetStepMemoryResponse& memory) {
  std::vector<std::pair<double, std::string>> places;
  const double forwards = (memory.intervals_size() - 2) / 2.0;
  if (forwards < 1) return places;
  places.emplace_back(forwards / 2, "forward");
  places.emplace_back(forwards + 0.5, "head");
  places.emplace_back(1 + 1.5 * forwards, "backward");
  return places;
}

}  // namespace

std::string FrontierFigure(const v1::GetFrontierResponse& frontier) {
  Chart chart;
  chart.alternative = "Replay time of a step against its peak";
  chart.x = {.quantity = Quantity::kBytes, .label = "step peak"};
  chart.y = {.quantity = Quantity::kSeconds, .label = "replay time per step", .from_zero = true};
  ChartLine hull{.style = "hull", .with_points = true};
  for (const v1::FrontierPoint& point : frontier.points()) hull.points.push_back(PointOf(point));
  chart.lines.push_back(std::move(hull));
  const int64_t limit = frontier.memory_limit_bytes();
  if (limit > 0) chart.vertical = {.at = static_cast<double>(limit), .text = "limit"};
  std::string caption = absl::StrCat("From ", FormatBytes(frontier.least_peak_bytes()), " with the least memory to ",
                                     FormatBytes(frontier.largest_peak_bytes()), " with everything kept.");
  if (frontier.has_current()) {
    chart.now = PointOf(frontier.current());
    absl::StrAppend(&caption, " The job stands at ", std::exchange(chart.now->title, "now"), " (predicted).");
  }
  return BothWidths(std::move(chart), caption);
}

std::string StepMemoryFigure(const v1::GetStepMemoryResponse& memory, int64_t memory_limit_bytes) {
  Chart chart;
  chart.alternative = "Memory through the step, predicted and measured";
  chart.x = {.quantity = Quantity::kPlaces, .label = "through the step", .places = PlacesOf(memory)};
  chart.y = {.quantity = Quantity::kBytes, .label = "memory", .from_zero = true};
  ChartLine predicted{.style = "predicted"}, measured{.style = "measured", .with_points = memory.intervals_size() <= 64};
  for (int i = 0; i < memory.intervals_size(); ++i) {
    const v1::IntervalMemory& part = memory.intervals(i);
    const auto peak = static_cast<double>(part.predicted_peak_bytes());
    predicted.points.push_back({static_cast<double>(i), peak, ""});
    predicted.points.push_back({i + 1.0, peak, ""});
    if (!part.has_measured_begin_bytes()) continue;
    for (const auto& [at, bytes] : {std::pair{i + 0.0, part.measured_begin_bytes()}, {i + 1.0, part.measured_end_bytes()}}) {
      measured.points.push_back({at, static_cast<double>(bytes), absl::StrCat(HolderText(part.place()), ": ", FormatBytes(bytes))});
    }
  }
  const bool any_measured = !measured.points.empty();
  chart.lines.push_back(std::move(predicted));
  if (any_measured) chart.lines.push_back(std::move(measured));
  if (memory_limit_bytes > 0) chart.horizontal = {.at = static_cast<double>(memory_limit_bytes), .text = "limit"};

  std::string caption = absl::StrCat("<span class=\"key predicted\"></span>predicted peak of each part, by generation ",
                                     memory.generation(), ": ", FormatBytes(memory.predicted_step_peak_bytes()), " at the most.");
  if (!memory.has_measured_rank()) return BothWidths(std::move(chart), caption + " No rank has measured a step yet.");
  const std::string where = absl::StrCat("rank ", memory.measured_rank(),
                                         memory.measured_node().empty() ? "" : " on " + EscapeMarkup(memory.measured_node()),
                                         ", step ", memory.measured_step(), ", generation ", memory.measured_generation());
  absl::StrAppend(&caption, " ",
                  any_measured ? "<span class=\"key measured\"></span>live bytes where blocks begin and end, measured by "
                               : "Measured without the blocks' ends by ",
                  where, ": ", FormatBytes(memory.measured_step_peak_bytes()), " at the step's peak.");
  return BothWidths(std::move(chart), caption);
}

}  // namespace tidetape::server
