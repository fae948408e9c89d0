#include "agent/link/server_list.h"

#include <gtest/gtest.h>

namespace tidetape::link {
namespace {

TEST(ServerList, OneServerIsAskedAgainAfterAPause) {
  ServerList servers("a:1");
  EXPECT_FALSE(servers.several());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(servers.current(), "a:1");
    EXPECT_FALSE(servers.Next(""));
  }
}

TEST(ServerList, EachIsAskedOnceARound) {
  ServerList servers("a:1,b:2,c:3");
  EXPECT_TRUE(servers.several());
  EXPECT_EQ(servers.current(), "a:1");
  EXPECT_TRUE(servers.Next(""));
  EXPECT_EQ(servers.current(), "b:2");
  EXPECT_TRUE(servers.Next(""));
  EXPECT_EQ(servers.current(), "c:3");
  EXPECT_FALSE(servers.Next(""));
  EXPECT_EQ(servers.current(), "a:1");
  EXPECT_TRUE(servers.Next(""));
  EXPECT_EQ(servers.current(), "b:2");
}

TEST(ServerList, GoesWhereTheLeaderIs) {
  ServerList servers("a:1,b:2");
  EXPECT_TRUE(servers.Next("elsewhere:9"));
  EXPECT_EQ(servers.current(), "elsewhere:9");
  // The leader is gone, and the others still name it: no server is asked twice before a pause.
  EXPECT_TRUE(servers.Next(""));
  EXPECT_EQ(servers.current(), "b:2");
  EXPECT_FALSE(servers.Next("elsewhere:9"));
  EXPECT_EQ(servers.current(), "a:1");
}

TEST(ServerList, OneNamedServerLeadsToAnother) {
  ServerList servers("a:1");
  EXPECT_TRUE(servers.Next("b:2"));
  EXPECT_EQ(servers.current(), "b:2");
  EXPECT_FALSE(servers.Next(""));
  EXPECT_EQ(servers.current(), "a:1");
  // A server that names itself is no news.
  EXPECT_FALSE(servers.Next("a:1"));
}

TEST(ServerList, AfterAGoodStreamAllMayBeAskedAgain) {
  ServerList servers("a:1,b:2");
  EXPECT_TRUE(servers.Next(""));
  servers.BeginRound();  // b:2 welcomed the agent, and is gone now
  EXPECT_TRUE(servers.Next(""));
  EXPECT_EQ(servers.current(), "a:1");
  EXPECT_FALSE(servers.Next(""));
}

TEST(ServerList, BadAddressesAreNamed) {
  EXPECT_EQ(ComplaintAboutServers("a:1"), "");
  EXPECT_EQ(ComplaintAboutServers("a:1,[::1]:2"), "");
  for (const char* servers : {"", "a", "a:0", "a:70000", "a:1,", "a:1,b", "::1:5", "dns:///a:1"}) {
    EXPECT_NE(ComplaintAboutServers(servers), "") << servers;
  }
}

}  // namespace
}  // namespace tidetape::link
