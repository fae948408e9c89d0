// The commands of docs/operations.md, as they stand there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_replace.h"
#include "server/auth/token_table.h"
#include "server/example_job.h"
#include "server/fake_agent.h"
#include "server/server_process.h"

namespace tidetape::server {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The first line of the guide that begins with this.
std::string CommandOf(const std::string& beginning) {
  const std::string guide = ReadFile("docs/operations.md");
  const size_t at = guide.find("\n" + beginning);
  EXPECT_NE(at, std::string::npos) << beginning;
  return guide.substr(at + 1, guide.find('\n', at + 1) - at - 1);
}

int64_t ReportsOf(const std::string& address) {
  const auto stub = v1::PlannerService::NewStub(ConnectTo(address));
  grpc::ClientContext context;
  v1::GetJobRequest request;
  request.set_job("example");
  v1::GetJobResponse job;
  const grpc::Status status = stub->GetJob(&context, request, &job);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return job.ranks_size() == 0 ? 0 : job.ranks(0).reports();
}

TEST(Operations, ABackupOfARunningServerIsRestored) {
  const std::string folder = testing::TempDir() + "/operations";
  std::filesystem::create_directories(folder);
  const std::string database = folder + "/server.db";
  ServerProcess server({"--store=sqlite:" + database});
  ASSERT_TRUE(server.Start());
  int64_t generation = 0;
  {
    FakeAgent agent(server.address(), ExampleHello());
    agent.SendTape(ExampleTape());
    ASSERT_TRUE(agent.WaitForAck(agent.SendReport(ExampleReport(1))));
    generation = agent.WaitForPlan(1).generation();
    const std::string backup = absl::StrReplaceAll(CommandOf("sqlite3 "), {{"~/.local/state/tidetape/server.db", database}});
    ASSERT_EQ(std::system(("cd " + folder + " && " + backup).c_str()), 0) << backup;
    ASSERT_TRUE(agent.WaitForAck(agent.SendReport(ExampleReport(2))));
    EXPECT_EQ(ReportsOf(server.address()), 2);
  }
  EXPECT_EQ(server.Stop(SIGTERM), 0);
  for (const char* beside : {"-wal", "-shm"}) std::filesystem::remove(database + beside);
  std::filesystem::copy_file(folder + "/server-backup.db", database, std::filesystem::copy_options::overwrite_existing);
  ASSERT_TRUE(server.Start());
  EXPECT_EQ(ReportsOf(server.address()), 1);
  FakeAgent back(server.address(), ExampleHello());
  EXPECT_EQ(back.WaitForPlan(1).generation(), generation);
}

TEST(Operations, ATokenIsMadeAndItsLineIsRead) {
  const std::string folder = testing::TempDir() + "/tokens";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  for (const char* beginning : {"openssl rand", "echo \"ada"}) {
    ASSERT_EQ(std::system(("cd " + folder + " && " + CommandOf(beginning)).c_str()), 0);
  }
  const auto table = TokenTable::Parse(ReadFile(folder + "/tokens"));
  ASSERT_TRUE(table.ok()) << table.status();
  const std::string token = absl::StrReplaceAll(ReadFile(folder + "/ada.token"), {{"\n", ""}});
  ASSERT_TRUE(table->Find(token).has_value());
  EXPECT_EQ(table->Find(token)->role, Role::kOperator);
}

// Runs a shell's command in a home of its own, with tidetapectl on the path; returns what it prints.
std::string InHome(const std::string& home, const std::string& shell, const std::string& command) {
  std::filesystem::create_directories(home + "/.config/fish/completions");
  const std::string path = std::filesystem::absolute("server").string();
  const std::string file = home + "/command";
  std::ofstream(file) << command << "\n";
  FILE* pipe =
      popen(("env -u XDG_CONFIG_HOME HOME=" + home + " PATH=" + path + ":$PATH " + shell + " " + file + " 2>&1").c_str(), "r");
  std::string output;
  char buffer[4096];
  for (size_t size; (size = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) output.append(buffer, size);
  EXPECT_EQ(pclose(pipe), 0) << command << ": " << output;
  return output;
}

TEST(Operations, ContextsAreMadeUsedAndListed) {
  const std::string home = testing::TempDir() + "/contexts-home";
  std::filesystem::remove_all(home);
  for (const char* beginning : {"tidetapectl context set", "tidetapectl context use"}) InHome(home, "bash", CommandOf(beginning));
  const std::string list = InHome(home, "bash", CommandOf("tidetapectl context list"));
  EXPECT_THAT(list, testing::ContainsRegex("\\* +prod +10.0.0.1:50551 +yes +[^ ]*/contexts-home/ada.token"));
}

TEST(Operations, ShellsTakeTheirCompletions) {
  const std::string home = testing::TempDir() + "/completion-home";
  std::filesystem::remove_all(home);
  EXPECT_THAT(InHome(home, "bash", CommandOf("source <(tidetapectl") + "\ncomplete -p tidetapectl"),
              testing::HasSubstr("-F _tidetapectl tidetapectl"));
  InHome(home, "zsh -f",
         "fpath=(" + home + " $fpath)\n" + CommandOf("tidetapectl completion zsh") + "\nautoload -U compinit && compinit -D -u");
  EXPECT_THAT(ReadFile(home + "/_tidetapectl"), testing::HasSubstr("#compdef tidetapectl"));
  InHome(home, "fish", CommandOf("tidetapectl completion fish"));
  EXPECT_THAT(ReadFile(home + "/.config/fish/completions/tidetapectl.fish"), testing::HasSubstr("rollback"));
}

}  // namespace
}  // namespace tidetape::server
