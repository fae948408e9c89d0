#include "server/ctl/frontier_svg.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "server/ctl/units.h"

namespace tidetape::ctl {
namespace {

constexpr double kWidth = 720, kHeight = 440;
constexpr double kLeft = 90, kRight = 24, kTop = 48, kBottom = 64;

std::string Escape(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// A linear axis with about five ticks at round values.
class Axis {
 public:
  Axis(double low, double high, double from, double to) : from_(from), to_(to) {
    if (high <= low) high = low + std::max(1e-9, std::abs(low) * 0.1);
    const double rough = (high - low) / 5;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    const double digit = rough / power;
    step_ = (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10) * power;
    low_ = std::floor(low / step_) * step_;
    high_ = std::ceil(high / step_) * step_;
  }

  double Place(double value) const { return from_ + (value - low_) / (high_ - low_) * (to_ - from_); }
  bool Holds(double value) const { return value >= low_ && value <= high_; }
  int decimals() const { return static_cast<int>(std::clamp(-std::floor(std::log10(step_)), 0.0, 9.0)); }

  std::vector<double> Ticks() const {
    std::vector<double> ticks;
    for (int i = 0; low_ + i * step_ <= high_ + step_ / 2; ++i) ticks.push_back(low_ + i * step_);
    return ticks;
  }

 private:
  double from_, to_, step_, low_, high_;
};

struct Unit {
  double scale = 1;
  const char* name = "";
};

Unit BytesUnit(double largest) {
  if (largest >= 0x1p30) return {0x1p30, "GiB"};
  if (largest >= 0x1p20) return {0x1p20, "MiB"};
  if (largest >= 0x1p10) return {0x1p10, "KiB"};
  return {1, "B"};
}

Unit SecondsUnit(double largest) {
  if (largest >= 1) return {1, "s"};
  if (largest >= 1e-3) return {1e-3, "ms"};
  return {1e-6, "us"};
}

std::string Line(double x1, double y1, double x2, double y2, const char* style) {
  return absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x1, y1, x2, y2, style);
}

std::string Text(double x, double y, const char* anchor, const std::string& text, const std::string& more = "") {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>%s</text>\n", x, y, anchor, more, Escape(text));
}

}  // namespace

std::string FrontierSvg(const FrontierPicture& picture) {
  std::vector<v1::FrontierPoint> all(picture.points.begin(), picture.points.end());
  if (picture.current.has_value()) all.push_back(*picture.current);
  double low = 0, high = 0, slowest = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto bytes = static_cast<double>(all[i].bytes());
    low = i == 0 ? bytes : std::min(low, bytes);
    high = std::max(high, bytes);
    slowest = std::max(slowest, all[i].replay_seconds());
  }
  const Unit bytes = BytesUnit(high), seconds = SecondsUnit(slowest);
  const Axis x(low / bytes.scale, high / bytes.scale, kLeft, kWidth - kRight);
  const Axis y(0, slowest / seconds.scale, kHeight - kBottom, kTop);
  const auto place_x = [&](double value) { return x.Place(value / bytes.scale); };
  const auto place_y = [&](double value) { return y.Place(value / seconds.scale); };

  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\">\n"
      "<style>\n"
      "text { font: 13px sans-serif; fill: #222 }\n"
      ".grid { stroke: #ddd } .axis { stroke: #222 } .limit { stroke: #c22; stroke-dasharray: 6 4 }\n"
      ".hull { fill: none; stroke: #26c; stroke-width: 2 } .point { fill: #26c } .current { fill: #e80; stroke: #222 }\n"
      "</style>\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      kWidth, kHeight, kWidth, kHeight);
  svg += Text(kWidth / 2, 26, "middle", picture.title, " style=\"font-size: 16px\"");
  for (const double tick : x.Ticks()) {
    svg += Line(x.Place(tick), kTop, x.Place(tick), kHeight - kBottom, "grid");
    svg += Text(x.Place(tick), kHeight - kBottom + 18, "middle", absl::StrFormat("%.*f", x.decimals(), tick));
  }
  for (const double tick : y.Ticks()) {
    svg += Line(kLeft, y.Place(tick), kWidth - kRight, y.Place(tick), "grid");
    svg += Text(kLeft - 8, y.Place(tick) + 4, "end", absl::StrFormat("%.*f", y.decimals(), tick));
  }
  svg += Line(kLeft, kHeight - kBottom, kWidth - kRight, kHeight - kBottom, "axis");
  svg += Line(kLeft, kTop, kLeft, kHeight - kBottom, "axis");
  svg += Text((kLeft + kWidth - kRight) / 2, kHeight - 20, "middle", absl::StrCat(picture.bytes_axis, " (", bytes.name, ")"));
  const double middle = (kTop + kHeight - kBottom) / 2;
  svg += Text(24, middle, "middle", absl::StrCat("replay time per step (", seconds.name, ")"),
              absl::StrFormat(" transform=\"rotate(-90 24 %.1f)\"", middle));

  const auto limit = static_cast<double>(picture.limit_bytes);
  if (picture.limit_bytes > 0 && x.Holds(limit / bytes.scale)) {
    svg += Line(place_x(limit), kTop, place_x(limit), kHeight - kBottom, "limit");
    svg += Text(place_x(limit) + 4, kTop + 14, "start", absl::StrCat("limit ", FormatBytes(picture.limit_bytes)));
  }
  std::string hull;
  for (const auto& point : picture.points) {
    absl::StrAppendFormat(&hull, "%.1f,%.1f ", place_x(static_cast<double>(point.bytes())), place_y(point.replay_seconds()));
  }
  absl::StrAppend(&svg, "<polyline class=\"hull\" points=\"", hull, "\"/>\n");
  for (const auto& point : picture.points) {
    absl::StrAppendFormat(&svg, "<circle class=\"point\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>%s, %s</title></circle>\n",
                          place_x(static_cast<double>(point.bytes())), place_y(point.replay_seconds()), FormatBytes(point.bytes()),
                          FormatSeconds(point.replay_seconds()));
  }
  if (picture.current.has_value()) {
    const double cx = place_x(static_cast<double>(picture.current->bytes())), cy = place_y(picture.current->replay_seconds());
    absl::StrAppendFormat(&svg, "<circle class=\"current\" cx=\"%.1f\" cy=\"%.1f\" r=\"6\"/>\n", cx, cy);
    const bool right = cx < kWidth / 2;
    svg +=
        Text(cx + (right ? 10 : -10), cy - 10, right ? "start" : "end",
             absl::StrCat("now: ", FormatBytes(picture.current->bytes()), ", ", FormatSeconds(picture.current->replay_seconds())));
  }
  return svg + "</svg>\n";
}

}  // namespace tidetape::ctl
