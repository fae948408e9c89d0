// The commands of docs/operations.md that set up somebody's home, as they stand there. tests/test_operations_guide.py runs the
// others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

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
