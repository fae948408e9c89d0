// The library as the tape's library uses it: opened by path, found by name. Links neither the library nor the protos: a second copy
// of generated code would abort the process.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "agent/link/testing/borrowed.h"
#include "agent/link/testing/small_job.h"
#include "agent/link/tt_link.h"

namespace tidetape::link {
namespace {

using ::testing::HasSubstr;

// The functions of one build of the library.
struct Library {
  explicit Library(const std::string& path) {
    handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      // Nothing else here can run.
      std::fprintf(stderr, "%s\n", dlerror());
      std::exit(1);
    }
    Find("tt_link_abi_version", abi_version);
    Find("tt_link_open", open);
    Find("tt_link_close", close);
    Find("tt_link_put_tape", put_tape);
    Find("tt_link_report_step", report_step);
    Find("tt_link_plan_activated", plan_activated);
    Find("tt_link_take_plan", take_plan);
    Find("tt_link_release_plan", release_plan);
    Find("tt_link_set_memory_limit", set_memory_limit);
    Find("tt_link_state", state);
  }

  template <typename Function>
  void Find(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(handle, name));
    EXPECT_NE(function, nullptr) << name;
  }

  void* handle = nullptr;
  decltype(tt_link_abi_version)* abi_version = nullptr;
  decltype(tt_link_open)* open = nullptr;
  decltype(tt_link_close)* close = nullptr;
  decltype(tt_link_put_tape)* put_tape = nullptr;
  decltype(tt_link_report_step)* report_step = nullptr;
  decltype(tt_link_plan_activated)* plan_activated = nullptr;
  decltype(tt_link_take_plan)* take_plan = nullptr;
  decltype(tt_link_release_plan)* release_plan = nullptr;
  decltype(tt_link_set_memory_limit)* set_memory_limit = nullptr;
  decltype(tt_link_state)* state = nullptr;
};

const Library& Full() {
  static const Library library("agent/link/libtt_agent.so");
  return library;
}

// Runs `body` in a forked child and returns how it ended: its exit code, or -signal. A child that hangs is ended by SIGALRM.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// 0 where every call in a child refuses; otherwise the number of the first that does not.
int CallEverything(const Library& library, tt_link* link) {
  const planner::BlockTape tape = SmallTape(9, {8}, {0});
  BorrowedTape borrowed_tape(tape);
  const planner::MemoryProfile profile = SmallProfile({9}, 100);
  BorrowedReport borrowed_report(1, &profile);
  tt_link_state_info info;
  if (library.put_tape(link, &borrowed_tape.tape()) != TT_LINK_FORKED) return 1;
  if (library.report_step(link, &borrowed_report.report()) != TT_LINK_FORKED) return 2;
  if (library.plan_activated(link, 1, 1) != TT_LINK_FORKED) return 3;
  if (library.take_plan(link, 0) != nullptr) return 4;
  if (library.set_memory_limit(link, 1) != TT_LINK_FORKED) return 5;
  if (library.state(link, &info) != TT_LINK_FORKED) return 6;
  library.close(link, 3600);
  char error[256] = "";
  const tt_link_options options = MakeOptions("local", 0);
  if (library.open(&options, error, sizeof(error)) != nullptr) return 7;
  if (std::string(error).find("forked") == std::string::npos) return 8;
  return 0;
}

tt_link* Open(const Library& library, const char* planner) {
  char error[256] = "";
  const tt_link_options options = MakeOptions(planner, 2000);
  tt_link* link = library.open(&options, error, sizeof(error));
  EXPECT_NE(link, nullptr) << error;
  return link;
}

void PutAndReport(const Library& library, tt_link* link, int64_t step) {
  const planner::BlockTape tape = SmallTape(1, {100, 200}, {0.001, 0.002});
  BorrowedTape borrowed_tape(tape);
  EXPECT_EQ(library.put_tape(link, &borrowed_tape.tape()), TT_LINK_OK);
  const planner::MemoryProfile profile = SmallProfile({1}, 1000);
  BorrowedReport borrowed_report(step, &profile);
  EXPECT_EQ(library.report_step(link, &borrowed_report.report()), TT_LINK_OK);
}

TEST(Dlopen, TheVersionIsTheHeaders) { EXPECT_EQ(Full().abi_version(), TT_LINK_ABI_VERSION); }

TEST(Dlopen, ThePlannerWorksInside) {
  tt_link* link = Open(Full(), "local");
  PutAndReport(Full(), link, 1);
  const tt_plan* plan = nullptr;
  for (int i = 0; i < 12000 && plan == nullptr; ++i) {
    plan = Full().take_plan(link, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->generation, 1);
  Full().release_plan(plan);
  Full().close(link, 1);
}

TEST(Dlopen, ChildrenOfALinkToAServerAreRefusedAtOnce) {
  // Nobody listens on port 1; the link's thread is busy with gRPC all the same.
  tt_link* link = Open(Full(), "127.0.0.1:1");
  for (int i = 0; i < 20; ++i) {
    PutAndReport(Full(), link, i);
    EXPECT_EQ(InChild([&] { return CallEverything(Full(), link); }), 0);
  }
  tt_link_state_info info;
  EXPECT_EQ(Full().state(link, &info), TT_LINK_OK);
  Full().close(link, 1);
}

TEST(Dlopen, ChildrenOfALocalLinkAreRefusedAtOnce) {
  tt_link* link = Open(Full(), "local");
  for (int i = 0; i < 20; ++i) {
    PutAndReport(Full(), link, i);
    EXPECT_EQ(InChild([&] { return CallEverything(Full(), link); }), 0);
  }
  Full().close(link, 1);
}

TEST(Dlopen, AProcessMayExitWithAnOpenLink) {
  for (const char* planner : {"local", "127.0.0.1:1"}) {
    const int ended = InChild([&] {
      // A fresh process image, as a launcher's worker has.
      execl("/proc/self/exe", "exit_with_open_link", "--exit_with_open_link", planner, nullptr);
      return 9;
    });
    EXPECT_EQ(ended, 0) << planner;
  }
}

TEST(Dlopen, WithoutGrpcServersAreRefusedAndThePlannerWorks) {
  const Library local("agent/link/libtt_agent_local.so");
  char error[256] = "";
  const tt_link_options options = MakeOptions("127.0.0.1:1", 0);
  EXPECT_EQ(local.open(&options, error, sizeof(error)), nullptr);
  EXPECT_THAT(error, HasSubstr("has no gRPC"));
  tt_link* link = Open(local, "local");
  PutAndReport(local, link, 1);
  local.close(link, 1);
}

int ExitWithOpenLink(const char* planner) {
  tt_link* link = Open(Full(), planner);
  PutAndReport(Full(), link, 1);
  return 0;
}

}  // namespace
}  // namespace tidetape::link

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--exit_with_open_link") return tidetape::link::ExitWithOpenLink(argv[2]);
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
