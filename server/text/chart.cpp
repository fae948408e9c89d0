#include "server/text/chart.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/text/markup.h"

namespace tidetape {
namespace {

constexpr double kLeft = 60, kRight = 24, kBottom = 52;
// Room that a tick's label takes.
constexpr double kTickWidth = 72, kTickHeight = 44;
// About that of 13px text.
constexpr double kLetterWidth = 7.5;

struct Unit {
  double scale = 1;
  const char* name = "";
};

Unit UnitOf(Quantity quantity, double largest) {
  if (quantity == Quantity::kBytes) {
    if (largest >= 0x1p40) return {0x1p40, "TiB"};
    if (largest >= 0x1p30) return {0x1p30, "GiB"};
    if (largest >= 0x1p20) return {0x1p20, "MiB"};
    if (largest >= 0x1p10) return {0x1p10, "KiB"};
    return {1, "B"};
  }
  if (quantity == Quantity::kSeconds) {
    if (largest >= 1) return {1, "s"};
    if (largest >= 1e-3) return {1e-3, "ms"};
    return {1e-6, "us"};
  }
  return {};
}

// A linear axis with ticks at round values.
class Axis {
 public:
  Axis(const ChartAxis& axis, double low, double high, double from, double to, double room) : from_(from), to_(to) {
    if (axis.from_zero) low = std::min(low, 0.0);
    unit_ = UnitOf(axis.quantity, std::max(std::abs(low), std::abs(high)));
    label_ = *unit_.name == 0 ? axis.label : absl::StrCat(axis.label, " (", unit_.name, ")");
    low_ = low / unit_.scale;
    high_ = high / unit_.scale;
    if (high_ <= low_) high_ = low_ + std::max(1e-9, std::abs(low_) * 0.1);
    if (axis.quantity == Quantity::kPlaces) {
      ticks_ = axis.places;
      return;
    }
    const double rough = (high_ - low_) / std::max(2.0, std::floor(std::abs(to - from) / room));
    const double power = std::pow(10, std::floor(std::log10(rough)));
    const double digit = rough / power;
    const double step = (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10) * power;
    low_ = std::floor(low_ / step) * step;
    high_ = std::ceil(high_ / step) * step;
    const int decimals = static_cast<int>(std::clamp(-std::floor(std::log10(step)), 0.0, 9.0));
    for (int i = 0; low_ + i * step <= high_ + step / 2; ++i) {
      const double value = low_ + i * step;
      ticks_.emplace_back(value * unit_.scale, absl::StrFormat("%.*f", decimals, value));
    }
  }

  double Place(double value) const { return from_ + (value / unit_.scale - low_) / (high_ - low_) * (to_ - from_); }
  bool Holds(double value) const { return value / unit_.scale >= low_ && value / unit_.scale <= high_; }
  const std::string& label() const { return label_; }
  const std::vector<std::pair<double, std::string>>& ticks() const { return ticks_; }

 private:
  double from_, to_, low_ = 0, high_ = 0;
  Unit unit_;
  std::string label_;
  std::vector<std::pair<double, std::string>> ticks_;
};

struct Range {
  double low = 0;
  double high = 0;
};

template <typename Value>
Range RangeOf(const Chart& chart, Value value) {
  bool any = false;
  Range range;
  const auto take = [&](const ChartPoint& point) {
    const double v = point.*value;
    range = any ? Range{std::min(range.low, v), std::max(range.high, v)} : Range{v, v};
    any = true;
  };
  for (const ChartLine& line : chart.lines) std::for_each(line.points.begin(), line.points.end(), take);
  if (chart.now.has_value()) take(*chart.now);
  return range;
}

std::string Line(double x1, double y1, double x2, double y2, const char* style) {
  return absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x1, y1, x2, y2, style);
}

std::string Text(double x, double y, const char* anchor, const std::string& text, const char* style = "") {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>%s</text>\n", x, y, anchor, style, EscapeMarkup(text));
}

// To the right of x, where a curve that falls leaves room; to the left where the text would not end before `right`.
std::string Beside(double x, double y, double gap, double right, const std::string& text) {
  const bool fits = x + gap + kLetterWidth * static_cast<double>(text.size()) <= right;
  return Text(fits ? x + gap : x - gap, y, fits ? "start" : "end", text);
}

}  // namespace

std::string ChartSvg(const Chart& chart) {
  const double top = chart.title.empty() ? 30 : 62;
  const double bottom = chart.height - kBottom, right = chart.width - kRight;
  const Range xs = RangeOf(chart, &ChartPoint::x), ys = RangeOf(chart, &ChartPoint::y);
  const Axis x(chart.x, xs.low, xs.high, kLeft, right, kTickWidth);
  const Axis y(chart.y, ys.low, ys.high, bottom, top, kTickHeight);

  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" role=\"img\">\n",
      chart.width, chart.height, chart.width, chart.height);
  if (!chart.alternative.empty()) absl::StrAppend(&svg, "<title>", EscapeMarkup(chart.alternative), "</title>\n");
  if (!chart.style.empty())
    absl::StrAppend(&svg, "<style>\n", chart.style, "</style>\n<rect width=\"100%\" height=\"100%\" class=\"back\"/>\n");
  if (!chart.title.empty()) svg += Text(chart.width / 2, 26, "middle", chart.title, " class=\"title\"");
  for (const auto& [value, label] : x.ticks()) {
    svg += Line(x.Place(value), top, x.Place(value), bottom, "grid");
    svg += Text(x.Place(value), bottom + 18, "middle", label);
  }
  for (const auto& [value, label] : y.ticks()) {
    svg += Line(kLeft, y.Place(value), right, y.Place(value), "grid");
    svg += Text(kLeft - 8, y.Place(value) + 4, "end", label);
  }
  svg += Line(kLeft, bottom, right, bottom, "axis");
  svg += Line(kLeft, top, kLeft, bottom, "axis");
  svg += Text((kLeft + right) / 2, chart.height - 14, "middle", x.label());
  svg += Text(4, top - 12, "start", y.label());

  if (chart.vertical.has_value() && x.Holds(chart.vertical->at)) {
    const double at = x.Place(chart.vertical->at);
    svg += Line(at, top, at, bottom, "limit");
    svg += Beside(at, top + 14, 4, right, chart.vertical->text);
  }
  if (chart.horizontal.has_value() && y.Holds(chart.horizontal->at)) {
    const double at = y.Place(chart.horizontal->at);
    svg += Line(kLeft, at, right, at, "limit");
    svg += Text(right, at - 5, "end", chart.horizontal->text);
  }
  for (const ChartLine& line : chart.lines) {
    std::string points;
    for (const ChartPoint& point : line.points) absl::StrAppendFormat(&points, "%.1f,%.1f ", x.Place(point.x), y.Place(point.y));
    absl::StrAppend(&svg, "<polyline class=\"", line.style, "\" points=\"", points, "\"/>\n");
    if (!line.with_points) continue;
    for (const ChartPoint& point : line.points) {
      absl::StrAppendFormat(&svg, "<circle class=\"%s-point\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>%s</title></circle>\n",
                            line.style, x.Place(point.x), y.Place(point.y), EscapeMarkup(point.title));
    }
  }
  if (chart.now.has_value()) {
    const double cx = x.Place(chart.now->x), cy = y.Place(chart.now->y);
    absl::StrAppendFormat(&svg, "<circle class=\"now\" cx=\"%.1f\" cy=\"%.1f\" r=\"6\"/>\n", cx, cy);
    svg += Beside(cx, std::max(cy - 10, top + 12), 10, right, chart.now->title);
  }
  return svg + "</svg>\n";
}

}  // namespace tidetape
