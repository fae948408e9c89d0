#include "server/auth/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace tidetape::server {
namespace {

using testing::HasSubstr;

// SHA-256 of "alpha" and "beta", as sha256sum prints them.
constexpr char kAlpha[] = "8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8";
constexpr char kBeta[] = "f44e64e75f3948e9f73f8dfa94721c4ce8cbb4f265c4790c702b2d41cfbf2753";

TEST(TokenTable, KnowsTokensByTheirHash) {
  const auto table = TokenTable::Parse(std::string("# people\n\nada operator ") + kAlpha + "\n  job7\tagent " + kBeta +
                                       " train-*  # of one job\r\n");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->size(), 2);
  EXPECT_EQ(table->Find("alpha")->name, "ada");
  EXPECT_EQ(table->Find("alpha")->role, Role::kOperator);
  EXPECT_EQ(table->Find("beta")->jobs, "train-*");
  for (const char* wrong : {"", "Alpha", "alpha ", "gamma", kAlpha}) EXPECT_FALSE(table->Find(wrong).has_value()) << wrong;
}

TEST(TokenTable, BadLinesAreNumberedAndNotRepeated) {
  const std::pair<std::string, const char*> cases[] = {
      {"ada operator s3cret", "line 1: the hash is not of 64 hexadecimal digits"},
      {"\nada operator", "line 2: 2 fields"},
      {std::string("ada king ") + kAlpha, "the role is not"},
      {std::string("ada agent ") + kAlpha, "an agent needs the glob"},
      {std::string("ada reader ") + kAlpha + " x", "only an agent has"},
      {std::string("ada agent ") + kAlpha + " x y", "5 fields"},
  };
  for (const auto& [text, message] : cases) {
    const absl::Status status = TokenTable::Parse(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
    EXPECT_EQ(std::string(status.message()).find("s3cret"), std::string::npos);
  }
}

TEST(TokenFile, IsReadAgainWhenItChanges) {
  const std::string path = testing::TempDir() + "/tokens";
  const auto write = [&](const std::string& text) {
    std::ofstream(path + ".new") << text;
    std::rename((path + ".new").c_str(), path.c_str());
  };
  ManualClock clock;
  EXPECT_TRUE(absl::IsNotFound(TokenFile::Open(path, &clock).status()));
  write(std::string("ada operator ") + kAlpha + "\n");
  const auto file = TokenFile::Open(path, &clock).value();
  EXPECT_TRUE(file->table()->Find("alpha").has_value());
  write(std::string("bob operator ") + kBeta + "\n");
  clock.Advance(TokenFile::kInterval);
  EXPECT_FALSE(file->table()->Find("alpha").has_value());
  EXPECT_TRUE(file->table()->Find("beta").has_value());
  // A mistake in it, or its absence, locks nobody out.
  write("bob operator\n");
  clock.Advance(TokenFile::kInterval);
  EXPECT_TRUE(file->table()->Find("beta").has_value());
  std::remove(path.c_str());
  clock.Advance(TokenFile::kInterval);
  EXPECT_TRUE(file->table()->Find("beta").has_value());
}

TEST(Rights, AreThoseOfTheTable) {
  const Principal agent{"a", Role::kAgent, "train-*"}, reader{"r", Role::kReader, "*"}, admin{"o", Role::kOperator, "*"};
  const auto allowed = [](const Principal& who, Right right, const std::string& job) { return CheckRight(who, right, job).ok(); };
  EXPECT_TRUE(allowed(agent, Right::kReport, "train-1"));
  EXPECT_TRUE(allowed(agent, Right::kReport, ""));  // the job comes with the first message
  EXPECT_FALSE(allowed(agent, Right::kReport, "other"));
  EXPECT_TRUE(allowed(agent, Right::kAsk, "train-1"));
  EXPECT_FALSE(allowed(agent, Right::kAsk, "other"));
  EXPECT_FALSE(allowed(agent, Right::kAsk, ""));
  EXPECT_FALSE(allowed(agent, Right::kList, ""));
  EXPECT_FALSE(allowed(agent, Right::kChange, "train-1"));
  EXPECT_FALSE(allowed(reader, Right::kReport, ""));
  EXPECT_TRUE(allowed(reader, Right::kAsk, "other"));
  EXPECT_TRUE(allowed(reader, Right::kList, ""));
  EXPECT_FALSE(allowed(reader, Right::kChange, "train-1"));
  for (const Right right : {Right::kReport, Right::kAsk, Right::kList, Right::kChange}) EXPECT_TRUE(allowed(admin, right, "x"));
  EXPECT_EQ(CheckRight(agent, Right::kAsk, "other").message(), "'a' is an agent of the jobs 'train-*', not of 'other'");
}

}  // namespace
}  // namespace tidetape::server
