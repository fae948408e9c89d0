// Line charts as SVG, without external assets. Colours are the document's: every part has a class.
//
//   grid axis             lines behind the data
//   limit                 vertical and horizontal rules with a text
//   now                   the one point that is marked
//   <ChartLine::style>    a line; with -point, its points
//
// Pure functions; safe to call from any thread.
#ifndef TIDETAPE_SERVER_TEXT_CHART_H_
#define TIDETAPE_SERVER_TEXT_CHART_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tidetape {

// What an axis counts; kPlaces has no unit, and ticks of its own.
enum class Quantity { kBytes, kSeconds, kPlaces };

struct ChartAxis {
  Quantity quantity = Quantity::kBytes;
  std::string label;  // the unit is put behind it
  bool from_zero = false;
  std::vector<std::pair<double, std::string>> places;  // ticks of kPlaces
};

struct ChartPoint {
  double x = 0;
  double y = 0;
  std::string title;  // shown on hovering; may be empty
};

struct ChartLine {
  std::string style;  // a class
  std::vector<ChartPoint> points;
  bool with_points = false;
};

// Left out where it lies beyond the axis.
struct ChartRule {
  double at = 0;
  std::string text;
};

struct Chart {
  double width = 720;
  double height = 440;
  std::string title;        // above the picture; empty: none
  std::string alternative;  // for who does not see it
  ChartAxis x;
  ChartAxis y;
  std::vector<ChartLine> lines;
  std::optional<ChartRule> vertical;
  std::optional<ChartRule> horizontal;
  std::optional<ChartPoint> now;  // its title is written beside it
  std::string style;              // a style sheet of its own, for a file; empty in a page
};

// A whole <svg> element.
std::string ChartSvg(const Chart& chart);

}  // namespace tidetape

#endif  // TIDETAPE_SERVER_TEXT_CHART_H_
