// tidetapectl as a process, against tidetape-server as a process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/testing/example_job.h"
#include "server/testing/fake_agent.h"

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
  EXPECT_EQ(unknown.code, 5);
  EXPECT_THAT(unknown.output, HasSubstr("Did you mean 'example'?"));
  const Outcome machine = Ctl("plan exampel -o json");
  EXPECT_EQ(machine.code, 5);
  EXPECT_THAT(machine.output, HasSubstr("{\"error\":{\"code\":\"NOT_FOUND\",\"reason\":\"JOB_NOT_FOUND\","));
  EXPECT_THAT(machine.output, HasSubstr("\"metadata\":{\"job\":\"exampel\"}}}"));

  // What the server would solve can be solved without it.
  EXPECT_EQ(server.Stop(), 0);
  const Outcome solved = Ctl("solve -o json " + Temporary("problem.json"));
  EXPECT_EQ(solved.code, 0) << solved.output;
  EXPECT_THAT(solved.output, HasSubstr("\"step_peak_bytes\": 1300"));
  EXPECT_THAT(Ctl("frontier --format json --file " + Temporary("problem.json")).output, HasSubstr("{\"saved_bytes\": 200,"));
  EXPECT_THAT(Ctl("frontier --format json --within 150 --gap 0 --effort 1000000 --file " + Temporary("problem.json")).output,
              HasSubstr("\"lower_bound_seconds\": "));
  const std::string file = " --file " + Temporary("problem.json");
  EXPECT_THAT(Ctl("policies" + file).output, HasSubstr("full checkpoint"));
  EXPECT_THAT(Ctl("policies --format json" + file).output, HasSubstr("\"policy\": \"additive knapsack\""));
  EXPECT_THAT(Ctl("step-frontier --format json" + file).output, HasSubstr("{\"step_peak_bytes\": "));
  EXPECT_THAT(Ctl("price --replay 'aten::op1'" + file).output, HasSubstr("with the wishes"));
  EXPECT_THAT(Ctl("price --save 'aten::none'" + file).output, HasSubstr("fits no storage"));
}

// A job whose agent holds a plan of generation 1 under 1300 bytes.
class PlannedJob {
 public:
  PlannedJob() : agent_(server_.address(), ExampleHello()) {
    agent_.SendTape(ExampleTape());
    agent_.SendReport(ExampleReport());
    EXPECT_EQ(agent_.WaitForPlan(1).generation(), 1);
  }

  FakeAgent& agent() { return agent_; }

 private:
  ServerProcess server_;
  FakeAgent agent_;
};

TEST(CtlProcess, LimitsArePutOnAJobAndTakenAway) {
  PlannedJob job;
  EXPECT_EQ(Ctl("set-limit example 1200B").output, "example: limit 1.17 KiB\n");
  EXPECT_EQ(job.agent().WaitForPlan(2).step_peak_bytes(), 1200);
  EXPECT_THAT(Ctl("job example").output, HasSubstr("asked        limit 1.17 KiB"));
  EXPECT_EQ(Ctl("set-limit example own").output, "example: limit the agents' own\n");
  EXPECT_EQ(job.agent().WaitForPlan(3).step_peak_bytes(), 1300);
  const Outcome nonsense = Ctl("set-limit example lots");
  EXPECT_EQ(nonsense.code, 1);
  EXPECT_THAT(nonsense.output, HasSubstr("or \"own\""));
}

TEST(CtlProcess, PinsAreAddedToThoseThereAre) {
  PlannedJob job;
  EXPECT_EQ(Ctl("pin example --value 'aten::op2' --block layers.1 --replay").code, 0);
  EXPECT_EQ(Ctl("pin example --value 'aten::op1' --save").output,
            "example: limit the agents' own\n  replay aten::op2 in layers.1\n  save aten::op1 in *\n");
  EXPECT_THAT(Ctl("job example -o json").output, HasSubstr("\"label_glob\": \"aten::op1\""));
  EXPECT_EQ(Ctl("pin example --clear").output, "example: limit the agents' own\n");
  EXPECT_EQ(Ctl("pin example --value x").code, 1);
  EXPECT_EQ(Ctl("pin example --value x --save --replay").code, 1);
  EXPECT_EQ(Ctl("pin example --clear --save").code, 1);
}

TEST(CtlProcess, APlanIsFrozenRolledBackAndResumed) {
  PlannedJob job;
  EXPECT_EQ(Ctl("freeze example").output, "example: limit the agents' own, frozen at generation 1\n");
  EXPECT_EQ(Ctl("resume example").output, "example: limit the agents' own\n");
  ASSERT_EQ(Ctl("set-limit example 1200B").code, 0);
  ASSERT_EQ(job.agent().WaitForPlan(2).step_peak_bytes(), 1200);
  EXPECT_EQ(Ctl("rollback example").output, "example: limit 1.17 KiB, frozen at generation 1\n");
  const v1::Plan back = job.agent().WaitForPlan(3);
  EXPECT_EQ(back.step_peak_bytes(), 1300);
  EXPECT_EQ(back.repeats_generation(), 1);
  EXPECT_EQ(Ctl("rollback example --to 2").output, "example: limit 1.17 KiB, frozen at generation 2\n");
  EXPECT_EQ(job.agent().WaitForPlan(4).step_peak_bytes(), 1200);
  const Outcome unknown = Ctl("rollback example --to 77");
  EXPECT_EQ(unknown.code, 5);
  EXPECT_THAT(unknown.output, HasSubstr("no plan of generation 77"));
  EXPECT_THAT(Ctl("plans example -o wide").output, HasSubstr("REPEATS"));
  EXPECT_THAT(Ctl("plan example --generation 1").output, HasSubstr("step peak    1.27 KiB"));
}

TEST(CtlProcess, DisablingIsRefusedWhereTheJobWouldNotFit) {
  PlannedJob job;
  const Outcome refused = Ctl("disable example");
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.output, HasSubstr("reaches 1.37 KiB, above its limit of 1.27 KiB"));
  EXPECT_EQ(Ctl("disable example --force").output, "example: disabled, everything is kept\n");
  EXPECT_EQ(job.agent().WaitForPlan(2).saved_bytes(), 400);
  EXPECT_EQ(Ctl("resume example").code, 0);
  EXPECT_EQ(job.agent().WaitForPlan(3).step_peak_bytes(), 1300);
}

TEST(CtlProcess, PlansAreCompared) {
  PlannedJob job;
  const Outcome alone = Ctl("compare example");
  EXPECT_EQ(alone.code, 1);
  EXPECT_THAT(alone.output, HasSubstr("no plan before generation 1"));
  ASSERT_EQ(Ctl("set-limit example max").code, 0);
  ASSERT_EQ(job.agent().WaitForPlan(2).saved_bytes(), 400);
  const Outcome compared = Ctl("compare example");
  EXPECT_EQ(compared.code, 0);
  EXPECT_THAT(compared.output, HasSubstr("+100 B"));
  EXPECT_THAT(compared.output, HasSubstr("-1 ms"));
  EXPECT_THAT(compared.output, HasSubstr("aten::op2"));
  EXPECT_EQ(Ctl("compare example@1 example@2").output, compared.output);
  EXPECT_THAT(Ctl("compare example@1 example@1").output, HasSubstr("all blocks keep the same"));
  EXPECT_THAT(Ctl("compare example -o json").output, HasSubstr("\"newly_kept\":[\"aten::op2\"],\"no_longer_kept\":[]}"));
}

// The example's rivals and prices are worked out in server/questions/what_if_answers_test.cpp.
TEST(CtlProcess, ALiveJobIsAskedWhatWouldBe) {
  PlannedJob job;
  const Outcome policies = Ctl("policies example");
  EXPECT_EQ(policies.code, 0) << policies.output;
  EXPECT_THAT(policies.output, testing::ContainsRegex("full checkpoint +1.07 KiB +22 ms +12 ms +yes"));
  EXPECT_THAT(Ctl("policies example --memory-limit 1050").output, testing::ContainsRegex("full checkpoint .* no"));
  const Outcome price = Ctl("price example --replay 'aten::op1@layers.0' --effort 1000000");
  EXPECT_THAT(price.output, testing::ContainsRegex("with 1 values pinned +1.27 KiB +300 B +10 ms +yes"));
  EXPECT_THAT(price.output, testing::ContainsRegex("without +1.27 KiB +300 B +1 ms +yes"));
  EXPECT_THAT(Ctl("price example --save 'aten::none'").output, HasSubstr("labels look like 'aten::op1'"));
  EXPECT_EQ(Ctl("price example").code, 1);
  const Outcome within = Ctl("frontier example --block 0 --within 150 --effort 1000000");
  EXPECT_THAT(within.output, HasSubstr("saved        100 B in 1 storages\nreplay       1 ms (at least 1 ms)"));
  EXPECT_THAT(Ctl("frontier example --within 150").output, HasSubstr("name it with --block"));
  EXPECT_THAT(Ctl("step-frontier example --svg " + Temporary("step.svg")).output, HasSubstr("1.37 KiB"));
  EXPECT_THAT(ReadFile(Temporary("step.svg")), HasSubstr("Frontier of example"));
  EXPECT_THAT(Ctl("simulate example --memory-limit 1.2KB --effort 1000000 --gap 0").output, HasSubstr("at least 2 ms"));
  const Outcome largest = Ctl("largest example -o json");
  EXPECT_EQ(largest.code, 1);
  EXPECT_THAT(largest.output, HasSubstr("\"reason\":\"ONE_SIZE\""));
  for (const char* neither : {"policies", "price --save x", "step-frontier", "policies example --file x"}) {
    EXPECT_THAT(Ctl(neither).output, HasSubstr("name either a job or --file FILE")) << neither;
  }
}

// The example at two sizes, the second started after the first.
TEST(CtlProcess, TheLargestBatchThatFitsIsTold) {
  ServerProcess server;
  std::unique_ptr<FakeAgent> agent;
  for (int batch = 1; batch <= 2; ++batch) {
    agent = std::make_unique<FakeAgent>(server.address(), ExampleHello(0, 1, "start" + std::to_string(batch), batch));
    v1::BlockTape tape = ExampleTape();
    for (int i = 1; i <= 2; ++i) {
      tape.mutable_storages(i)->set_bytes(50 * batch);
      tape.mutable_storages(i)->set_label("aten::op" + std::to_string(i) + "#0 [" + std::to_string(batch) + ", 4, 8] Float");
    }
    agent->SendTape(tape);
    agent->SendReport(ExampleReport());
    ASSERT_EQ(agent->WaitForPlan(batch).generation(), batch);
  }
  const Outcome largest = Ctl("largest example");
  EXPECT_EQ(largest.code, 0) << largest.output;
  EXPECT_THAT(largest.output, HasSubstr("largest      batch 4\n"));
  EXPECT_THAT(largest.output, HasSubstr("lines through 2 sizes of batch"));
  EXPECT_THAT(Ctl("largest example --of batch --memory-limit 999").output, HasSubstr("not even batch 1 fits"));
  EXPECT_THAT(Ctl("largest example --of sequence").output, HasSubstr("seen at one sequence only"));
  EXPECT_THAT(Ctl("largest example --memory-limit max").output, HasSubstr("name one"));
}

TEST(CtlProcess, WatchingPrintsWhatChanges) {
  PlannedJob job;
  EXPECT_THAT(Ctl("memory example").output, HasSubstr("backward of layers.1"));
  // Nothing changes: one line.
  const std::string once = Ctl("jobs -w --every 0.05 --for 0.3 -o json").output;
  EXPECT_EQ(std::count(once.begin(), once.end(), '\n'), 1) << once;
  std::thread later([] {
    absl::SleepFor(absl::Milliseconds(300));
    EXPECT_EQ(Ctl("set-limit example 1200B").code, 0);
  });
  const std::string twice = Ctl("plan example -w --every 0.05 --for 3 -o json").output;
  later.join();
  EXPECT_THAT(twice, HasSubstr("\"generation\":\"1\""));
  EXPECT_THAT(twice, HasSubstr("\"generation\":\"2\""));
}

TEST(CtlProcess, AContextStandsForAServer) {
  PlannedJob job;
  setenv("TIDETAPE_CONTEXTS", Temporary("contexts.toml").c_str(), 1);
  const std::string address = getenv("TIDETAPE_SERVER");
  unsetenv("TIDETAPE_SERVER");
  EXPECT_THAT(Ctl("context list").output, HasSubstr("no contexts"));
  EXPECT_EQ(Ctl("context set here --server " + address).code, 0);
  EXPECT_EQ(Ctl("context set nowhere --server 127.0.0.1:1 --token-file some.token").code, 0);
  EXPECT_THAT(Ctl("jobs").output, HasSubstr("example"));
  EXPECT_EQ(Ctl("jobs --context nowhere --timeout 5").code, 1);  // its token file is not there
  EXPECT_EQ(Ctl("context use nowhere").code, 0);
  EXPECT_THAT(Ctl("context list -o json").output, HasSubstr("\"name\":\"nowhere\",\"current\":true"));
  EXPECT_EQ(Ctl("context use her").code, 5);
  EXPECT_THAT(Ctl("context use her").output, HasSubstr("Did you mean 'here'?"));
  EXPECT_EQ(Ctl("context delete nowhere").code, 0);
  EXPECT_EQ(Ctl("context names").output, "here\n");
  EXPECT_EQ(Ctl("context set 'a b' --server x:1").code, 1);
  EXPECT_THAT(Ctl("context lst").output, HasSubstr("Did you mean 'list'?"));
}

// The fields that programs rely on, for each kind of answer. Fields may be added here, never taken away.
TEST(CtlProcess, JsonKeepsItsFields) {
  PlannedJob job;
  const std::pair<const char*, std::vector<const char*>> answers[] = {
      {"jobs",
       {"jobs", "job", "state", "incarnation", "world_size", "connected_ranks", "generation", "memory_limit_bytes",
        "step_peak_bytes", "step_seconds", "step", "waiting_for", "predicted_peak_bytes", "predicted_replay_seconds",
        "replay_seconds", "end_reason"}},
      {"job example",
       {"summary", "ranks", "constraints", "device", "torch_version", "events", "constraints_etag", "rank", "node", "connected",
        "active_generation", "held_generation", "last_report", "silent_seconds", "plan_error", "reports"}},
      {"plan example",
       {"plan", "generation", "etag", "blocks", "block", "name", "saved", "replayed", "saved_bytes", "replay_seconds",
        "own_peak_bytes", "step_peak_bytes", "lower_bound_seconds", "gap_ratio", "feasible", "least_peak_bytes", "reason",
        "committed_unix_micros", "repeats_generation"}},
      {"plans example", {"plans", "generation", "repeats_generation", "reason"}},
      {"frontier example",
       {"points", "bytes", "replay_seconds", "current", "memory_limit_bytes", "least_peak_bytes", "largest_peak_bytes"}},
      {"memory example", {"intervals", "place", "phase", "predicted_peak_bytes", "generation", "predicted_step_peak_bytes"}},
      {"explain example",
       {"blocks", "values", "label", "site", "bytes", "action", "other_choice_seconds", "other_choice_bytes", "why"}},
      {"policies example",
       {"policies", "policy", "step_peak_bytes", "replay_seconds", "keeps_limit", "planned_seconds", "memory_limit_bytes"}},
      {"price example --save 'aten::op1'", {"with", "without", "pinned_values", "step_peak_bytes", "replay_seconds"}},
      {"frontier example --block 0 --within 150", {"point", "bytes", "replay_seconds", "saved", "lower_bound_seconds"}},
  };
  for (const auto& [command, fields] : answers) {
    const Outcome outcome = Ctl(std::string(command) + " -o json");
    EXPECT_EQ(outcome.code, 0) << command;
    for (const char* field : fields) EXPECT_THAT(outcome.output, HasSubstr(std::string("\"") + field + "\":")) << command;
  }
}

// Completes the last word of the line as the shell would.
std::string Complete(const std::string& shell, const std::string& line) {
  const std::string script = Temporary("completion." + shell);
  EXPECT_EQ(Ctl("completion " + shell + " > " + script).code, 0);
  // The script calls tidetapectl by its name.
  const std::string path = "PATH=$PWD/server:$PATH ";
  const std::string run = shell == "fish"
                              ? "fish --no-config -c 'source " + script + "; complete -C \"" + line + "\"'"
                              : shell + (shell == "zsh" ? " -f" : " --norc") + " -c 'source " + script + "; words=(" + line +
                                    " ); COMP_WORDS=(\"${words[@]}\"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tidetapectl; " +
                                    "echo \"${COMPREPLY[@]}\"'";
  FILE* pipe = popen((path + run + " 2>&1").c_str(), "r");
  std::string output;
  char buffer[4096];
  for (size_t size; (size = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) output.append(buffer, size);
  pclose(pipe);
  return output;
}

TEST(CtlProcess, BashAndFishCompleteCommandsOptionsAndJobs) {
  PlannedJob job;
  for (const char* shell : {"bash", "fish"}) {
    EXPECT_THAT(Complete(shell, "tidetapectl rollb"), HasSubstr("rollback")) << shell;
    EXPECT_THAT(Complete(shell, "tidetapectl rollback exa"), HasSubstr("example")) << shell;
    EXPECT_THAT(Complete(shell, "tidetapectl rollback example --t"), HasSubstr("--to")) << shell;
    EXPECT_THAT(Complete(shell, "tidetapectl --timeout 5 frontier exa"), HasSubstr("example")) << shell;
    EXPECT_THAT(Complete(shell, "tidetapectl jobs -o w"), HasSubstr("wide")) << shell;
    EXPECT_THAT(Complete(shell, "tidetapectl context us"), HasSubstr("use")) << shell;
    EXPECT_THAT(Complete(shell, "tidetapectl completion f"), HasSubstr("fish")) << shell;
  }
}

TEST(CtlProcess, ZshTakesItsScript) {
  const std::string script = Temporary("completion.zsh");
  ASSERT_EQ(Ctl("completion zsh > " + script).code, 0);
  EXPECT_EQ(std::system(
                ("zsh -f -c 'autoload -U compinit && compinit -D -u && source " + script + " && whence -w _tidetapectl'").c_str()),
            0);
  EXPECT_EQ(Ctl("completion csh").code, 2);
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
      {"{\"memory_limit_bytes\": \"5\", \"head_peak_bytes\": \"77\"}",
       "no plan keeps memory_limit_bytes = 5; the least step peak is 77 bytes, in head"},
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
