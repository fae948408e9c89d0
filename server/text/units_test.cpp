#include "server/text/units.h"

#include <gtest/gtest.h>

namespace tidetape {
namespace {

TEST(Units, ParsesBytes) {
  EXPECT_EQ(ParseBytes("1024").value(), 1024);
  EXPECT_EQ(ParseBytes("3.5GiB").value(), 3758096384);
  EXPECT_EQ(ParseBytes("3.5 GiB").value(), 3758096384);
  EXPECT_EQ(ParseBytes("800MB").value(), 800'000'000);
  EXPECT_EQ(ParseBytes("1.2KB").value(), 1200);
  EXPECT_EQ(ParseBytes("2TiB").value(), int64_t{2} << 40);
  EXPECT_EQ(ParseBytes("1e3").value(), 1000);
  EXPECT_EQ(ParseBytes("-2KiB").value(), -2048);
  for (const char* bad : {"", "GiB", "3.5Gib", "12 parrots", "nan", "inf", "1e300", "90%"})
    EXPECT_FALSE(ParseBytes(bad).ok()) << bad;
}

TEST(Units, ParsesLimits) {
  EXPECT_EQ(ParseLimit("min").value(), 0);
  EXPECT_EQ(ParseLimit("max").value(), -1);
  EXPECT_EQ(ParseLimit("2MiB").value(), 2 << 20);
  for (const char* bad : {"0", "-1", "most"}) EXPECT_FALSE(ParseLimit(bad).ok()) << bad;
}

TEST(Units, Formats) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(3758096384), "3.50 GiB");
  EXPECT_EQ(FormatBytes(-20 << 20), "-20.0 MiB");
  EXPECT_EQ(FormatLimit(0), "min");
  EXPECT_EQ(FormatLimit(-1), "max");
  EXPECT_EQ(FormatLimit(1024), "1.00 KiB");
  EXPECT_EQ(FormatSeconds(0), "0 s");
  EXPECT_EQ(FormatSeconds(0.0000123), "12.3 us");
  EXPECT_EQ(FormatSeconds(0.0123), "12.3 ms");
  EXPECT_EQ(FormatSeconds(-1.5), "-1.5 s");
}

}  // namespace
}  // namespace tidetape
