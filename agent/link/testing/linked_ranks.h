// For tests: the ranks of a job, as the training process sees them: tt_link and nothing else.
#ifndef TIDETAPE_AGENT_LINK_TESTING_LINKED_RANKS_H_
#define TIDETAPE_AGENT_LINK_TESTING_LINKED_RANKS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "agent/link/testing/borrowed.h"
#include "agent/link/testing/small_job.h"
#include "agent/link/tt_link.h"

namespace tidetape::link {

class LinkedRanks {
 public:
  // `planner` as in tt_link_options.
  LinkedRanks(const std::string& planner, int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      tt_link_options options = MakeOptions(planner.c_str(), 2000);
      options.rank = rank;
      options.world_size = ranks;
      char error[256] = "";
      links_.push_back(tt_link_open(&options, error, sizeof(error)));
      EXPECT_NE(links_.back(), nullptr) << error;
    }
  }
  ~LinkedRanks() {
    for (tt_link* link : links_) tt_link_close(link, 0);
  }
  LinkedRanks(const LinkedRanks&) = delete;
  LinkedRanks& operator=(const LinkedRanks&) = delete;

  void PutTapesAndReport(int64_t step) {
    for (tt_link* link : links_) {
      for (const planner::BlockTape& tape :
           {SmallTape(1, {100, 250, 400}, {0.003, 0.002, 0.004}), SmallTape(2, {150, 350, 300}, {0.001, 0.005, 0.002})}) {
        BorrowedTape borrowed(tape);
        EXPECT_EQ(tt_link_put_tape(link, &borrowed.tape()), TT_LINK_OK);
      }
      const planner::MemoryProfile profile = SmallProfile({1, 2}, 1000);
      BorrowedReport borrowed(step, &profile);
      tt_link_report_step(link, &borrowed.report());
    }
  }

  void SetMemoryLimit(int64_t bytes) {
    for (tt_link* link : links_) EXPECT_EQ(tt_link_set_memory_limit(link, bytes), TT_LINK_OK);
  }

  // Waits until all ranks have a plan above `generation`, and the same one. Returns its generation; 0 where it does not come.
  int64_t AwaitPlanAbove(int64_t generation) {
    std::vector<int64_t> taken(links_.size(), generation);
    std::vector<std::string> etags(links_.size());
    Await([&] {
      for (size_t i = 0; i < links_.size(); ++i) {
        if (const tt_plan* plan = tt_link_take_plan(links_[i], taken[i])) {
          taken[i] = plan->generation;
          etags[i] = plan->etag;
          tt_link_release_plan(plan);
        }
      }
      return std::all_of(taken.begin(), taken.end(), [&](int64_t mine) { return mine > generation && mine == taken[0]; });
    });
    for (const std::string& etag : etags) EXPECT_EQ(etag, etags[0]);
    for (tt_link* link : links_) EXPECT_EQ(tt_link_plan_activated(link, taken[0], 1), TT_LINK_OK);
    return taken[0] > generation ? taken[0] : 0;
  }

  bool AwaitConnected() {
    return Await(
        [&] { return std::all_of(links_.begin(), links_.end(), [](tt_link* link) { return State(link).connected == 1; }); });
  }

  // Waits until a rank's last error has this in it.
  bool AwaitError(const std::string& text) {
    return Await([&] { return LastError().find(text) != std::string::npos; });
  }
  std::string LastError() { return State(links_[0]).last_error; }

  template <typename Condition>
  static bool Await(Condition holds) {
    for (int i = 0; i < 6000; ++i) {
      if (holds()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

 private:
  static tt_link_state_info State(tt_link* link) {
    tt_link_state_info state{};
    EXPECT_EQ(tt_link_state(link, &state), TT_LINK_OK);
    return state;
  }

  std::vector<tt_link*> links_;
};

}  // namespace tidetape::link

#endif  // TIDETAPE_AGENT_LINK_TESTING_LINKED_RANKS_H_
