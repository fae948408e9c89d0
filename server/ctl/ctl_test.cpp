#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "server/ctl/closest_name.h"
#include "server/ctl/frontier_svg.h"
#include "server/ctl/table.h"

namespace tidetape::ctl {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(ClosestName, FindsTypingErrorsOnly) {
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(ClosestName("qwen3-trian", {"llama", "qwen3-train", "qwen3-eval"}), "qwen3-train");
  EXPECT_EQ(ClosestName("bert", {"llama", "qwen3-train"}), "");
  EXPECT_EQ(ClosestName("x", {}), "");
}

TEST(Table, AlignsColumns) {
  Table table({"A", "LONG", "C"});
  table.Add({"wide cell", "x", "1"});
  std::ostringstream out;
  table.Print(out);
  EXPECT_EQ(out.str(), "A          LONG  C\nwide cell  x     1\n");
}

FrontierPicture Picture() {
  FrontierPicture picture;
  picture.title = "a < b & c";
  picture.bytes_axis = "step peak";
  for (int i = 0; i < 3; ++i) {
    v1::FrontierPoint* point = picture.points.Add();
    point->set_bytes(int64_t{4 - i} << 30);
    point->set_replay_seconds(0.010 * i);
  }
  picture.current = picture.points[1];
  picture.limit_bytes = int64_t{3} << 30;
  return picture;
}

TEST(FrontierSvg, HasAxesUnitsLimitAndThePointNow) {
  const std::string svg = FrontierSvg(Picture());
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; c"));
  EXPECT_THAT(svg, HasSubstr("step peak (GiB)"));
  EXPECT_THAT(svg, HasSubstr("replay time per step (ms)"));
  EXPECT_THAT(svg, HasSubstr("limit 3.00 GiB"));
  EXPECT_THAT(svg, HasSubstr("now: 3.00 GiB, 10 ms"));
}

TEST(FrontierSvg, PointsLieWithinThePicture) {
  const std::string svg = FrontierSvg(Picture());
  size_t circles = 0;
  for (size_t at = svg.find("cx=\""); at != std::string::npos; at = svg.find("cx=\"", at + 1)) {
    const double x = std::stod(svg.substr(at + 4)), y = std::stod(svg.substr(svg.find("cy=\"", at) + 4));
    EXPECT_TRUE(x >= 60 && x <= 696 && y >= 62 && y <= 388) << x << " " << y;
    ++circles;
  }
  EXPECT_EQ(circles, 4);
}

TEST(FrontierSvg, OnePointAndNoneAreDrawn) {
  FrontierPicture picture = Picture();
  picture.points.DeleteSubrange(1, 2);
  EXPECT_THAT(FrontierSvg(picture), Not(HasSubstr("nan")));
  picture.points.Clear();
  picture.current.reset();
  EXPECT_THAT(FrontierSvg(picture), Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace tidetape::ctl
