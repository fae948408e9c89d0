#include "server/auth/audit_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tidetape::server {
namespace {

TEST(AuditLog, WritesOneJsonObjectALineAndAppends) {
  const std::string path = testing::TempDir() + "/audit";
  ManualClock clock;
  for (int life = 0; life < 2; ++life) {
    AuditLog::Open(path, &clock)
        .value()
        ->Write({"ada \"the\"\nfirst", "ipv4:127.0.0.1", "SetConstraints", "train", "{}", "{\"memory_limit_bytes\": \"5\"}", "OK"});
  }
  std::ifstream file(path);
  std::string line;
  int lines = 0;
  while (std::getline(file, line)) {
    ++lines;
    EXPECT_EQ(line,
              "{\"time\":\"2023-11-14T22:13:20+00:00\",\"who\":\"ada \\\"the\\\"\\nfirst\",\"peer\":\"ipv4:127.0.0.1\","
              "\"action\":\"SetConstraints\",\"job\":\"train\",\"before\":{},\"after\":{\"memory_limit_bytes\": \"5\"},"
              "\"outcome\":\"OK\"}");
  }
  EXPECT_EQ(lines, 2);
  EXPECT_EQ(std::filesystem::status(path).permissions() & std::filesystem::perms::others_all, std::filesystem::perms::none);
}

TEST(AuditLog, SaysWhereItCannotBeWritten) {
  ManualClock clock;
  EXPECT_TRUE(absl::IsUnavailable(AuditLog::Open("/nowhere/audit", &clock).status()));
  AuditLog::Open("", &clock).value()->Write({});
}

}  // namespace
}  // namespace tidetape::server
