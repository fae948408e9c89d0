// Two ranks and the real server in a process of its own, which is killed and started again.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "agent/link/testing/borrowed.h"
#include "agent/link/testing/small_job.h"
#include "agent/link/tt_link.h"

namespace tidetape::link {
namespace {

constexpr const char* kServer = "server/tidetape-server";

class ServerProcess {
 public:
  ~ServerProcess() { Stop(SIGKILL); }

  // Starts the server on the port that it had before, or a free one, and waits until it listens.
  void Start() {
    const std::string listen = "--listen=" + (address_.empty() ? "127.0.0.1:0" : address_);
    const std::string address_file = ::testing::TempDir() + "/address." + std::to_string(getpid());
    std::remove(address_file.c_str());
    const std::string address_flag = "--address_file=" + address_file;
    pid_ = fork();
    if (pid_ == 0) {
      execl(kServer, kServer, listen.c_str(), address_flag.c_str(), "--store=memory", "--log_level=warning", nullptr);
      _exit(127);
    }
    for (int i = 0; i < 6000; ++i) {
      std::ifstream file(address_file);
      if (std::getline(file, address_) && !address_.empty()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    FAIL() << kServer << " does not listen";
  }

  // Returns the exit code, or -signal.
  int Stop(int signal) {
    if (pid_ <= 0) return 0;
    kill(pid_, signal);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  const std::string& address() const { return address_; }

 private:
  pid_t pid_ = 0;
  std::string address_;
};

class ServerProcessTest : public ::testing::Test {
 protected:
  ~ServerProcessTest() override {
    for (tt_link* link : links_) tt_link_close(link, 0);
  }

  tt_link* Open(int rank, const char* incarnation = "first", int64_t order = 1) {
    tt_link_options options = MakeOptions(server_.address().c_str(), 2000);
    options.rank = rank;
    options.world_size = 2;
    options.incarnation = incarnation;
    options.incarnation_order = order;
    char error[256] = "";
    tt_link* link = tt_link_open(&options, error, sizeof(error));
    EXPECT_NE(link, nullptr) << error;
    links_.push_back(link);
    return link;
  }

  void PutAndReport(tt_link* link, int64_t step) {
    const std::vector<planner::BlockTape> tapes = {SmallTape(1, {100, 250, 400}, {0.003, 0.002, 0.004}),
                                                   SmallTape(2, {150, 350, 300}, {0.001, 0.005, 0.002})};
    for (const planner::BlockTape& tape : tapes) {
      BorrowedTape borrowed(tape);
      EXPECT_EQ(tt_link_put_tape(link, &borrowed.tape()), TT_LINK_OK);
    }
    const planner::MemoryProfile profile = SmallProfile({1, 2}, 1000);
    BorrowedReport borrowed(step, &profile);
    EXPECT_EQ(tt_link_report_step(link, &borrowed.report()), TT_LINK_OK);
  }

  static const tt_plan* AwaitPlan(tt_link* link, int64_t above) {
    for (int i = 0; i < 12000; ++i) {
      if (const tt_plan* plan = tt_link_take_plan(link, above)) return plan;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "no plan above generation " << above;
    return nullptr;
  }

  static bool AwaitError(tt_link* link, const std::string& text) {
    tt_link_state_info state;
    for (int i = 0; i < 12000; ++i) {
      EXPECT_EQ(tt_link_state(link, &state), TT_LINK_OK);
      if (std::string(state.last_error).find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << state.last_error;
    return false;
  }

  ServerProcess server_;
  std::vector<tt_link*> links_;
};

TEST_F(ServerProcessTest, BothRanksGetOnePlanAlsoFromARestartedServer) {
  server_.Start();
  tt_link* ranks[2] = {Open(0), Open(1)};
  for (tt_link* rank : ranks) PutAndReport(rank, 1);
  int64_t generation = 0;
  std::string etag;
  for (int life = 0; life < 4; ++life) {
    const tt_plan* plans[2] = {AwaitPlan(ranks[0], generation), AwaitPlan(ranks[1], generation)};
    ASSERT_NE(plans[0], nullptr);
    ASSERT_NE(plans[1], nullptr);
    EXPECT_EQ(plans[0]->generation, plans[1]->generation);
    EXPECT_STREQ(plans[0]->etag, plans[1]->etag);
    EXPECT_LE(plans[0]->step_peak_bytes, 2000);
    EXPECT_EQ(plans[0]->feasible, 1);
    ASSERT_EQ(plans[0]->num_blocks, 2u);
    EXPECT_STREQ(plans[0]->blocks[1].name, "layers.1");
    // The measurements are the same, so the plan is.
    if (life > 0) {
      EXPECT_EQ(plans[0]->etag, etag);
    }
    etag = plans[0]->etag;
    generation = plans[0]->generation;
    for (const tt_plan* plan : plans) tt_link_release_plan(plan);
    for (tt_link* rank : ranks) EXPECT_EQ(tt_link_plan_activated(rank, generation, 10 * life), TT_LINK_OK);

    server_.Stop(SIGKILL);
    for (tt_link* rank : ranks) ASSERT_TRUE(AwaitError(rank, "ended"));
    const auto start = std::chrono::steady_clock::now();
    server_.Start();
    // It forgot everything, so a plan above the ranks' generation means that tapes and measurements are back.
    for (tt_link* rank : ranks) {
      const tt_plan* plan = AwaitPlan(rank, generation);
      ASSERT_NE(plan, nullptr);
      tt_link_release_plan(plan);
    }
    const std::chrono::duration<double> away = std::chrono::steady_clock::now() - start;
    std::printf("life %d: planned again %.2f s after the start of the server\n", life + 1, away.count());
  }
}

TEST_F(ServerProcessTest, AStoppingServerLetsItsRanksGo) {
  server_.Start();
  tt_link* ranks[2] = {Open(0), Open(1)};
  for (tt_link* rank : ranks) PutAndReport(rank, 1);
  const tt_plan* plan = AwaitPlan(ranks[0], 0);
  ASSERT_NE(plan, nullptr);
  tt_link_release_plan(plan);
  EXPECT_EQ(server_.Stop(SIGTERM), 0);
  for (tt_link* rank : ranks) AwaitError(rank, server_.address());
  server_.Start();
  plan = AwaitPlan(ranks[1], 1);
  ASSERT_NE(plan, nullptr);
  tt_link_release_plan(plan);
}

TEST_F(ServerProcessTest, ANewStartOfTheJobEndsTheOldLinks) {
  server_.Start();
  tt_link* old_rank = Open(0, "first", 1);
  PutAndReport(old_rank, 1);
  tt_link* new_rank = Open(0, "second", 2);
  PutAndReport(new_rank, 1);
  ASSERT_TRUE(AwaitError(old_rank, "second"));
  tt_link_status status = TT_LINK_OK;
  for (int i = 0; i < 12000 && status != TT_LINK_CLOSED; ++i) {
    status = tt_link_plan_activated(old_rank, 1, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(status, TT_LINK_CLOSED);
  tt_link_state_info state;
  ASSERT_EQ(tt_link_state(new_rank, &state), TT_LINK_OK);
  EXPECT_EQ(state.connected, 1) << state.last_error;
}

}  // namespace
}  // namespace tidetape::link
