// tidetapectl as a process, against tidetape-server as a process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "server/example_job.h"
#include "server/fake_agent.h"

namespace tidetape::server {
namespace {

using testing::HasSubstr;

struct Outcome {
  int code = -1;
  std::string output;  // stdout and stderr
};

Outcome Ctl(const std::string& arguments) {
  FILE* pipe = popen(("server/tidetapectl " + arguments + " 2>&1").c_str(), "r");
  Outcome outcome;
  char buffer[4096];
  for (size_t size; (size = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) outcome.output.append(buffer, size);
  outcome.code = WEXITSTATUS(pclose(pipe));
  return outcome;
}

std::string Temporary(const std::string& name) { return std::string(getenv("TEST_TMPDIR")) + "/" + name; }

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class ServerProcess {
 public:
  ServerProcess() {
    const std::string file = Temporary("address");
    std::remove(file.c_str());
    std::string program = "server/tidetape-server", listen = "--listen=127.0.0.1:0", address = "--address_file=" + file,
                store = "--store=memory", http = "--http_listen=";
    char* arguments[] = {program.data(), listen.data(), address.data(), store.data(), http.data(), nullptr};
    EXPECT_EQ(posix_spawn(&pid_, program.c_str(), nullptr, nullptr, arguments, environ), 0);
    for (int i = 0; i < 3000 && address_.empty(); ++i) {
      absl::SleepFor(absl::Milliseconds(10));
      std::ifstream(file) >> address_;
    }
    setenv("TIDETAPE_SERVER", address_.c_str(), 1);
  }

  ~ServerProcess() {
    if (pid_ > 0) Stop();
  }

  // Returns the exit code after SIGTERM.
  int Stop() {
    kill(pid_, SIGTERM);
    int status = -1;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  const std::string& address() const { return address_; }

 private:
  pid_t pid_ = -1;
  std::string address_;
};

TEST(CtlProcess, AnswersFromARunningServer) {
  ServerProcess server;
  ASSERT_FALSE(server.address().empty());
  EXPECT_EQ(Ctl("jobs").output, "no jobs\n");
  FakeAgent agent(server.address(), ExampleHello());
  agent.SendTape(ExampleTape());
  agent.SendReport(ExampleReport());
  ASSERT_EQ(agent.WaitForPlan(1).generation(), 1);

  EXPECT_THAT(Ctl("jobs").output, HasSubstr("switching"));
  EXPECT_THAT(Ctl("plan example").output, HasSubstr("step peak    1.27 KiB in head"));
  for (const char* json : {"-o json", "--format json", "--format=json", "--output=json"}) {
    const Outcome outcome = Ctl(std::string("plan example ") + json);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_THAT(outcome.output, HasSubstr("\"step_peak_bytes\": \"1300\"")) << json;
  }
  const Outcome frontier = Ctl("frontier example --svg " + Temporary("frontier.svg"));
  EXPECT_THAT(frontier.output, HasSubstr("now   1.27 KiB, replay 1 ms"));
  EXPECT_THAT(ReadFile(Temporary("frontier.svg")), HasSubstr("Frontier of example"));
  EXPECT_THAT(Ctl("frontier example --block 1").output, HasSubstr("200 B"));
  EXPECT_THAT(Ctl("explain example --block 0").output, HasSubstr("aten::op1"));
  EXPECT_THAT(Ctl("simulate example --memory-limit 1.2KB").output, HasSubstr("replay       2 ms"));
  EXPECT_THAT(Ctl("simulate example --memory-limit max").output, HasSubstr("limit        max"));
  EXPECT_THAT(Ctl("watch example --for 0.5 -o json").output, HasSubstr("\"job\":\"example\""));

  std::ofstream(Temporary("problem.json")) << Ctl("problem example").output;
  const Outcome ended = Ctl("end example");
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.output, "example: anyone ended it\n");
  EXPECT_THAT(Ctl("jobs").output, HasSubstr("ended"));

  const Outcome unknown = Ctl("plan exampel");
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.output, HasSubstr("Did you mean 'example'?"));

  // What the server would solve can be solved without it.
  EXPECT_EQ(server.Stop(), 0);
  const Outcome solved = Ctl("solve -o json " + Temporary("problem.json"));
  EXPECT_EQ(solved.code, 0) << solved.output;
  EXPECT_THAT(solved.output, HasSubstr("\"step_peak_bytes\": 1300"));
  EXPECT_THAT(Ctl("frontier --format json --file " + Temporary("problem.json")).output, HasSubstr("{\"saved_bytes\": 200,"));
  EXPECT_THAT(Ctl("frontier --format json --within 150 --gap 0 --effort 1000000 --file " + Temporary("problem.json")).output,
              HasSubstr("\"lower_bound_seconds\": "));
  EXPECT_THAT(Ctl("policies " + Temporary("problem.json")).output, HasSubstr("full checkpoint"));
  EXPECT_THAT(Ctl("policies --format json " + Temporary("problem.json")).output, HasSubstr("\"policy\": \"additive knapsack\""));
  EXPECT_THAT(Ctl("step-frontier --format json " + Temporary("problem.json")).output, HasSubstr("{\"step_peak_bytes\": "));
  EXPECT_THAT(Ctl("price --replay 'aten::op1' " + Temporary("problem.json")).output, HasSubstr("with the wishes"));
  EXPECT_THAT(Ctl("price --save 'aten::none' " + Temporary("problem.json")).output, HasSubstr("fits no storage"));
}

TEST(CtlProcess, SaysWhatIsWrong) {
  EXPECT_THAT(Ctl("--version").output, HasSubstr("tidetapectl "));
  const Outcome nobody = Ctl("jobs --server 127.0.0.1:1 --timeout 5");
  EXPECT_EQ(nobody.code, 3);
  EXPECT_THAT(nobody.output, HasSubstr("no answer from 127.0.0.1:1"));
  EXPECT_EQ(Ctl("").code, 2);
  EXPECT_EQ(Ctl("jobs -o yaml").code, 2);
  const Outcome mistyped = Ctl("frontiers x");
  EXPECT_EQ(mistyped.code, 2);
  EXPECT_THAT(mistyped.output, HasSubstr("Did you mean 'frontier'?"));
  EXPECT_EQ(Ctl("frontier").code, 1);
  EXPECT_THAT(Ctl("simulate x --memory-limit lots").output, HasSubstr("'lots' is no number of bytes"));
}

TEST(CtlProcess, BadProblemFilesAreNamed) {
  const std::string path = Temporary("bad.json");
  const std::pair<const char*, const char*> cases[] = {
      {"{\"tapes\": [{\"colour\": 1}]}", "colour"},
      {"{\"tapes\": [", "not a planning problem"},
      {"{\"tapes\": [{\"name\": \"b\", \"ops\": [{\"name\": \"a\", \"reads\": [9]}]}]}", "reads[0] is 9"},
      {"{\"memory_limit_bytes\": \"-5\"}", "memory_limit_bytes"},
  };
  for (const auto& [content, message] : cases) {
    std::ofstream(path) << content;
    const Outcome outcome = Ctl("solve " + path);
    EXPECT_EQ(outcome.code, 1) << content;
    EXPECT_THAT(outcome.output, HasSubstr(path + ": "));
    EXPECT_THAT(outcome.output, HasSubstr(message));
  }
  EXPECT_THAT(Ctl("solve " + Temporary("none.json")).output, HasSubstr("cannot be opened"));
}

}  // namespace
}  // namespace tidetape::server
