#include "server/ctl/contexts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace tidetape::ctl {
namespace {

using testing::HasSubstr;

class ContextsTest : public testing::Test {
 protected:
  ContextsTest() : path_(testing::TempDir() + "/contexts-test/contexts.toml") {
    std::filesystem::remove_all(std::filesystem::path(path_).parent_path());
    setenv("TIDETAPE_CONTEXTS", path_.c_str(), 1);
    for (const char* variable : {"TIDETAPE_SERVER", "TIDETAPE_TOKEN_FILE", "TIDETAPE_TLS_CA", "TIDETAPE_CONTEXT"})
      unsetenv(variable);
  }

  void Write(const std::string& content) {
    std::filesystem::create_directories(std::filesystem::path(path_).parent_path());
    std::ofstream(path_) << content;
  }

  std::string ErrorOf(const std::string& content) {
    Write(content);
    const auto contexts = ReadContexts(path_);
    EXPECT_FALSE(contexts.ok());
    return std::string(contexts.status().message());
  }

  const std::string path_;
};

TEST_F(ContextsTest, WhatIsWrittenIsRead) {
  Contexts contexts;
  contexts.current = "prod";
  Connection& prod = contexts.by_name["prod"];
  prod.server = "planner.example:50551";
  prod.security.token_file = "/home/ada/a token, = [x].token";
  prod.security.ca_file = "/ca.pem";
  contexts.by_name["test"].server = "127.0.0.1:1";
  ASSERT_TRUE(WriteContexts(contexts, path_).ok());
  const auto read = ReadContexts(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->current, "prod");
  ASSERT_EQ(read->by_name.size(), 2);
  EXPECT_EQ(read->by_name.at("prod").server, "planner.example:50551");
  EXPECT_EQ(read->by_name.at("prod").security.token_file, prod.security.token_file);
  EXPECT_EQ(read->by_name.at("prod").security.ca_file, "/ca.pem");
  EXPECT_EQ(read->by_name.at("test").server, "127.0.0.1:1");
  struct stat status {};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600);
}

TEST_F(ContextsTest, NoFileIsNoContext) {
  const auto contexts = ReadContexts(path_);
  ASSERT_TRUE(contexts.ok());
  EXPECT_TRUE(contexts->by_name.empty());
}

TEST_F(ContextsTest, MistakesAreNamed) {
  EXPECT_THAT(ErrorOf("current = \"prod\"\n"), HasSubstr("current is 'prod', which is no context here"));
  EXPECT_THAT(ErrorOf("[prod]\ntoken-fil = \"x\"\n"), HasSubstr("[prod] has no setting 'token-fil'. Did you mean 'token-file'?"));
  EXPECT_THAT(ErrorOf("server = \"x\"\n"), HasSubstr("'server' is in no context"));
  EXPECT_THAT(ErrorOf("server = \"x\"\n"), HasSubstr(path_));
  Write("[prod]\nserver = \"x:1\"\n");
  EXPECT_THAT(std::string(ReadContexts(path_)->Find("prodd").status().message()), HasSubstr("Did you mean 'prod'?"));
  EXPECT_THAT(std::string(ReadContexts(path_)->Find("x").status().message()), HasSubstr("there are prod"));
  Contexts contexts;
  for (const char* file : {"a\"b", "a\\b", "a#b", "a\nb"}) {
    contexts.by_name["prod"].security.ca_file = file;
    EXPECT_TRUE(absl::IsInvalidArgument(WriteContexts(contexts, path_))) << file;
  }
}

TEST_F(ContextsTest, WhoSaysMoreWins) {
  Write("current = \"prod\"\n[prod]\nserver = \"prod:1\"\ntoken-file = \"prod.token\"\n[test]\nserver = \"test:1\"\n");
  const auto server = [](const std::string& context, const std::string& flag) {
    Connection connection;
    connection.server = flag;
    EXPECT_TRUE(CompleteConnection(context, connection).ok());
    return connection.server + " " + connection.security.token_file;
  };
  EXPECT_EQ(server("", ""), "prod:1 prod.token");
  setenv("TIDETAPE_SERVER", "environment:1", 1);
  EXPECT_EQ(server("", ""), "environment:1 prod.token");
  // A context that is named is meant as a whole.
  EXPECT_EQ(server("test", ""), "test:1 ");
  EXPECT_EQ(server("test", "flag:1"), "flag:1 ");
  setenv("TIDETAPE_CONTEXT", "prod", 1);
  EXPECT_EQ(server("", ""), "prod:1 prod.token");
  unsetenv("TIDETAPE_CONTEXT");
  unsetenv("TIDETAPE_SERVER");
  std::filesystem::remove(path_);
  EXPECT_EQ(server("", ""), "127.0.0.1:50551 ");
  Connection connection;
  EXPECT_TRUE(absl::IsNotFound(CompleteConnection("nowhere", connection)));
}

}  // namespace
}  // namespace tidetape::ctl
