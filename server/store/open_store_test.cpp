#include "server/store/open_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace tidetape::server {
namespace {

using testing::HasSubstr;

class OpenStoreTest : public testing::Test {
 protected:
  OpenStoreTest() {
    for (const char* name : {"STATE_DIRECTORY", "XDG_STATE_HOME"}) unsetenv(name);
    setenv("HOME", "/home/ada", 1);
  }

  SystemClock clock_;
};

TEST_F(OpenStoreTest, TheDefaultPathFollowsTheEnvironment) {
  EXPECT_EQ(DefaultStorePath().value(), "/home/ada/.local/state/tidetape/server.db");
  setenv("XDG_STATE_HOME", "/state", 1);
  EXPECT_EQ(DefaultStorePath().value(), "/state/tidetape/server.db");
  setenv("STATE_DIRECTORY", "/var/lib/tidetape:/var/lib/other", 1);
  EXPECT_EQ(DefaultStorePath().value(), "/var/lib/tidetape/server.db");
  unsetenv("STATE_DIRECTORY");
  unsetenv("XDG_STATE_HOME");
  unsetenv("HOME");
  EXPECT_TRUE(absl::IsInvalidArgument(DefaultStorePath().status()));
}

TEST_F(OpenStoreTest, OpensWhatIsNamed) {
  EXPECT_FALSE(OpenStore("memory", &clock_).value()->Durable());
  const std::string path = testing::TempDir() + "/named/store.db";
  EXPECT_TRUE(OpenStore("sqlite:" + path, &clock_).value()->Durable());
  EXPECT_TRUE(std::filesystem::exists(path));
  setenv("XDG_STATE_HOME", testing::TempDir().c_str(), 1);
  EXPECT_TRUE(OpenStore("sqlite", &clock_).value()->Durable());
  EXPECT_TRUE(std::filesystem::exists(testing::TempDir() + "/tidetape/server.db"));
}

TEST_F(OpenStoreTest, TellsPostgresFromFiles) {
  EXPECT_TRUE(IsPostgres("postgresql://ada@db/tapes"));
  EXPECT_TRUE(IsPostgres("postgres:///tapes"));
  EXPECT_TRUE(IsPostgres("host=/run/postgresql dbname=tapes"));
  for (const char* name : {"sqlite", "sqlite:/x/server.db", "memory", "mysql://x"}) EXPECT_FALSE(IsPostgres(name)) << name;
}

TEST_F(OpenStoreTest, SaysWhatItKnows) {
  for (const char* name : {"", "mysql://x", "sqlite:", "/some/path"}) {
    const absl::Status status = OpenStore(name, &clock_).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("use sqlite, sqlite:PATH")) << name;
  }
}

}  // namespace
}  // namespace tidetape::server
