#include "server/text/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidetape {
namespace {

using testing::HasSubstr;
using testing::Not;

Chart Example() {
  Chart chart;
  chart.title = "a < b";
  chart.x = {.quantity = Quantity::kBytes, .label = "step peak"};
  chart.y = {.quantity = Quantity::kSeconds, .label = "replay", .from_zero = true};
  chart.lines = {{.style = "hull", .points = {{0x1p31, 0.02, "fast"}, {0x1p30, 0.04, "lean & slow"}}, .with_points = true}};
  chart.vertical = {.at = 1.5 * 0x1p30, .text = "limit"};
  chart.now = {.x = 0x1p31, .y = 0.02, .title = "now"};
  return chart;
}

double Attribute(const std::string& svg, const std::string& name, size_t at) {
  return std::stod(svg.substr(svg.find(" " + name + "=\"", at) + name.size() + 3));
}

TEST(Chart, AxesHaveUnitsAndRoundTicks) {
  const std::string svg = ChartSvg(Example());
  EXPECT_THAT(svg, HasSubstr("step peak (GiB)"));
  EXPECT_THAT(svg, HasSubstr("replay (ms)"));
  EXPECT_THAT(svg, HasSubstr(">1.6</text>"));
  EXPECT_THAT(svg, HasSubstr(">0</text>"));
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, HasSubstr("<title>lean &amp; slow</title>"));
}

TEST(Chart, ValuesLieInProportion) {
  // Twice the bytes of the first point are at the right end of the axis, the limit is half way; time falls downwards from 40 ms.
  const std::string svg = ChartSvg(Example());
  const size_t fast = svg.find("hull-point"), lean = svg.find("hull-point", fast + 1), limit = svg.find("class=\"limit\"");
  const double right = Attribute(svg, "cx", fast), left = Attribute(svg, "cx", lean);
  EXPECT_DOUBLE_EQ(right, 696);
  EXPECT_DOUBLE_EQ(left, 60);
  EXPECT_DOUBLE_EQ(Attribute(svg, "x1", svg.rfind("<line", limit)), (left + right) / 2);
  const double bottom = 440 - 52;
  EXPECT_NEAR(bottom - Attribute(svg, "cy", lean), 2 * (bottom - Attribute(svg, "cy", fast)), 0.11);
}

TEST(Chart, ARuleBeyondTheAxisIsLeftOut) {
  Chart chart = Example();
  chart.vertical->at = 0x1p40;
  EXPECT_THAT(ChartSvg(chart), Not(HasSubstr("class=\"limit\"")));
}

TEST(Chart, OnePointAndNoneAreDrawn) {
  Chart chart = Example();
  chart.lines[0].points.resize(1);
  EXPECT_THAT(ChartSvg(chart), Not(HasSubstr("nan")));
  chart.lines.clear();
  chart.now.reset();
  EXPECT_THAT(ChartSvg(chart), Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace tidetape
