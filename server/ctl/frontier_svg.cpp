#include "server/ctl/frontier_svg.h"

#include "absl/strings/str_cat.h"
#include "server/text/chart.h"
#include "server/text/units.h"

namespace tidetape::ctl {
namespace {

constexpr char kStyle[] =
    "text { font: 13px sans-serif; fill: #222 } .title { font-size: 16px } .back { fill: white }\n"
    ".grid { stroke: #ddd } .axis { stroke: #222 } .limit { stroke: #c22; stroke-dasharray: 6 4 }\n"
    ".hull { fill: none; stroke: #26c; stroke-width: 2 } .hull-point { fill: #26c } .now { fill: #e80; stroke: #222 }\n";

ChartPoint PointOf(const v1::FrontierPoint& point) {
  return {static_cast<double>(point.bytes()), point.replay_seconds(),
          absl::StrCat(FormatBytes(point.bytes()), ", ", FormatSeconds(point.replay_seconds()))};
}

}  // namespace

std::string FrontierSvg(const FrontierPicture& picture) {
  Chart chart;
  chart.title = picture.title;
  chart.style = kStyle;
  chart.x = {.quantity = Quantity::kBytes, .label = picture.bytes_axis};
  chart.y = {.quantity = Quantity::kSeconds, .label = "replay time per step", .from_zero = true};
  ChartLine hull{.style = "hull", .with_points = true};
  for (const v1::FrontierPoint& point : picture.points) hull.points.push_back(PointOf(point));
  chart.lines.push_back(std::move(hull));
  if (picture.limit_bytes > 0) {
    chart.vertical = {.at = static_cast<double>(picture.limit_bytes),
                      .text = absl::StrCat("limit ", FormatBytes(picture.limit_bytes))};
  }
  if (picture.current.has_value()) {
    chart.now = PointOf(*picture.current);
    chart.now->title = absl::StrCat("now: ", chart.now->title);
  }
  return ChartSvg(chart);
}

}  // namespace tidetape::ctl
