// The embedded planner end to end, through the C interface.
#include "agent/link/local_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <thread>

#include "agent/link/testing/borrowed.h"
#include "agent/link/testing/small_job.h"
#include "agent/link/tt_link.h"
#include "planner/job/merge_ranks.h"
#include "planner/planner.h"

namespace tidetape::link {
namespace {

using ::testing::HasSubstr;
using ::testing::StrEq;

constexpr uint64_t kFirst = 1;
constexpr uint64_t kSecond = 2;

class LocalLinkTest : public ::testing::Test {
 protected:
  ~LocalLinkTest() override { tt_link_close(link_, 0); }

  void Open(int64_t limit) {
    const tt_link_options options = MakeOptions("local", limit);
    char error[256] = "";
    link_ = tt_link_open(&options, error, sizeof(error));
    ASSERT_NE(link_, nullptr) << error;
    limit_ = limit;
  }

  void PutTapes() {
    for (const auto& [hash, tape] : tapes_) {
      BorrowedTape borrowed(tape);
      ASSERT_EQ(tt_link_put_tape(link_, &borrowed.tape()), TT_LINK_OK);
    }
  }

  void Report(const planner::MemoryProfile& profile, const std::vector<planner::TapeCosts>& costs = {}) {
    BorrowedReport borrowed(step_++, &profile, costs);
    ASSERT_EQ(tt_link_report_step(link_, &borrowed.report()), TT_LINK_OK);
  }

  // The next plan above the given generation; null where none comes for a while.
  const tt_plan* Await(int64_t above, std::chrono::milliseconds patience = std::chrono::seconds(20)) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (std::chrono::steady_clock::now() < end) {
      if (const tt_plan* plan = tt_link_take_plan(link_, above)) return plan;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return nullptr;
  }

  // Reports a changed limit and waits for its plan, so that everything reported before has been looked at.
  void ExpectNoPlanBeside(int64_t generation) {
    ASSERT_EQ(tt_link_set_memory_limit(link_, ++limit_), TT_LINK_OK);
    const tt_plan* plan = Await(generation);
    ASSERT_NE(plan, nullptr);
    EXPECT_EQ(plan->generation, generation + 1) << plan->reason;
    EXPECT_THAT(plan->reason, HasSubstr("limit changed"));
    tt_link_release_plan(plan);
  }

  planner::PlanningProblem Problem(const planner::MemoryProfile& profile, int64_t limit) {
    const planner::CostsByHash none;
    return *planner::MergeRanks(tapes_, {{0, &profile, &none}}, limit);
  }

  // The fastest of all choices of saved storages in two blocks under the limit, by trying each.
  planner::StepPlan Fastest(const planner::PlanningProblem& problem) {
    planner::StepPlan best;
    best.replay_seconds = std::numeric_limits<double>::infinity();
    for (int first = 0; first < 8; ++first) {
      for (int second = 0; second < 8; ++second) {
        std::vector<std::vector<int32_t>> saved(2);
        for (int32_t i = 0; i < 3; ++i) {
          if (first >> i & 1) saved[0].push_back(i + 1);
          if (second >> i & 1) saved[1].push_back(i + 1);
        }
        const auto plan = planner::EvaluatePlan(problem, saved);
        EXPECT_TRUE(plan.ok()) << plan.status();
        if (plan->step_peak_bytes <= problem.memory_limit_bytes && plan->replay_seconds < best.replay_seconds) best = *plan;
      }
    }
    return best;
  }

  planner::TapesByHash tapes_ = {{kFirst, SmallTape(kFirst, {100, 250, 400}, {0.003, 0.002, 0.004})},
                                 {kSecond, SmallTape(kSecond, {150, 350, 300}, {0.001, 0.005, 0.002})}};
  tt_link* link_ = nullptr;
  int64_t limit_ = 0;
  int64_t step_ = 0;
};

// On the step's frontier no other choice is faster; between its points the plan's own bound holds.
TEST_F(LocalLinkTest, PlansAreAsFastAsTheirBoundsSay) {
  const planner::MemoryProfile profile = SmallProfile({kFirst, kSecond}, 1000);
  Open(0);
  PutTapes();
  Report(profile);
  const tt_plan* least = Await(0);
  ASSERT_NE(least, nullptr);
  const int64_t least_peak = least->step_peak_bytes;
  EXPECT_EQ(least->least_peak_bytes, least_peak);
  tt_link_release_plan(least);

  std::set<int64_t> limits;
  std::set<int64_t> on_frontier;
  for (int64_t limit = least_peak; limit <= 2700; limit += 50) limits.insert(limit);
  const auto frontier = planner::StepFrontier(Problem(profile, 0));
  ASSERT_TRUE(frontier.ok()) << frontier.status();
  ASSERT_GT(frontier->size(), 3u);
  for (const planner::FrontierPoint& point : *frontier) {
    limits.insert(point.bytes);
    on_frontier.insert(point.bytes);
  }

  int64_t generation = 1;
  for (int64_t limit : limits) {
    ASSERT_EQ(tt_link_set_memory_limit(link_, limit), TT_LINK_OK);
    const tt_plan* plan = Await(generation);
    ASSERT_NE(plan, nullptr);
    EXPECT_EQ(plan->generation, ++generation);
    EXPECT_EQ(plan->memory_limit_bytes, limit);
    EXPECT_EQ(plan->feasible, 1);
    EXPECT_LE(plan->step_peak_bytes, limit);
    const planner::PlanningProblem problem = Problem(profile, limit);
    const double fastest = Fastest(problem).replay_seconds;
    EXPECT_LE(plan->lower_bound_seconds, fastest + 1e-12) << "limit " << limit;
    EXPECT_GE(plan->replay_seconds, fastest - 1e-12) << "limit " << limit;
    if (on_frontier.count(limit) > 0) {
      EXPECT_NEAR(plan->replay_seconds, fastest, 1e-12) << "limit " << limit;
    }

    // The sites say the same as the numbers.
    ASSERT_EQ(plan->num_blocks, 2u);
    std::vector<std::vector<int32_t>> saved(2);
    for (size_t k = 0; k < 2; ++k) {
      const tt_block_plan& block = plan->blocks[k];
      EXPECT_EQ(block.structure_hash, k + 1);
      EXPECT_EQ(block.block, static_cast<int32_t>(k));
      EXPECT_THAT(block.name, StrEq("layers." + std::to_string(k)));
      EXPECT_EQ(block.default_action, TT_ACTION_REPLAY);
      for (size_t i = 0; i < block.num_sites; ++i) {
        EXPECT_EQ(block.sites[i].action, TT_ACTION_SAVE);
        saved[k].push_back(static_cast<int32_t>(block.sites[i].site - 10 * (k + 1)));
      }
      EXPECT_EQ(block.num_saved, static_cast<int32_t>(saved[k].size()));
    }
    const auto evaluated = planner::EvaluatePlan(problem, saved);
    ASSERT_TRUE(evaluated.ok()) << evaluated.status();
    EXPECT_EQ(evaluated->step_peak_bytes, plan->step_peak_bytes);
    EXPECT_EQ(evaluated->saved_bytes, plan->saved_bytes);
    EXPECT_NEAR(evaluated->replay_seconds, plan->replay_seconds, 1e-12);
    tt_link_release_plan(plan);
  }
}

TEST_F(LocalLinkTest, MinusOneKeepsEverything) {
  Open(-1);
  PutTapes();
  Report(SmallProfile({kFirst, kSecond}, 1000));
  const tt_plan* plan = Await(0);
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->memory_limit_bytes, -1);
  EXPECT_EQ(plan->replay_seconds, 0);
  EXPECT_EQ(plan->saved_bytes, 100 + 250 + 400 + 150 + 350 + 300);
  for (size_t k = 0; k < plan->num_blocks; ++k) {
    EXPECT_EQ(plan->blocks[k].default_action, TT_ACTION_SAVE);
    EXPECT_EQ(plan->blocks[k].num_sites, 0u);
    EXPECT_EQ(plan->blocks[k].num_replayed, 0);
  }
  tt_link_release_plan(plan);
}

TEST_F(LocalLinkTest, AnInfeasibleLimitGivesTheLeastMemoryPlanAndSaysWhatHoldsIt) {
  Open(10);
  PutTapes();
  planner::MemoryProfile profile = SmallProfile({kFirst, kSecond}, 1000);
  profile.optimizer_peak_bytes = 5000;
  Report(profile);
  const tt_plan* plan = Await(0);
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->feasible, 0);
  EXPECT_EQ(plan->least_peak_bytes, 5000);
  EXPECT_THAT(plan->least_peak_holder, StrEq("optimizer"));
  tt_link_release_plan(plan);
}

TEST_F(LocalLinkTest, PlansOnlyWithASteadyProfileAndAllItsTapes) {
  Open(2000);
  BorrowedTape first(tapes_[kFirst]);
  ASSERT_EQ(tt_link_put_tape(link_, &first.tape()), TT_LINK_OK);
  Report(SmallProfile({kFirst}, 1000, /*steady=*/false));
  Report(SmallProfile({kFirst, kSecond}, 1000));
  EXPECT_EQ(Await(0, std::chrono::milliseconds(200)), nullptr);
  // The missing tape makes the last profile complete.
  BorrowedTape second(tapes_[kSecond]);
  ASSERT_EQ(tt_link_put_tape(link_, &second.tape()), TT_LINK_OK);
  const tt_plan* plan = Await(0);
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->generation, 1);
  EXPECT_EQ(plan->num_blocks, 2u);
  EXPECT_THAT(plan->reason, StrEq("first plan"));
  EXPECT_EQ(tt_link_take_plan(link_, 1), nullptr);
  tt_link_release_plan(plan);
}

TEST_F(LocalLinkTest, GenerationsContinueAboveTheActivatedOne) {
  Open(2000);
  ASSERT_EQ(tt_link_plan_activated(link_, 41, 7), TT_LINK_OK);
  PutTapes();
  Report(SmallProfile({kFirst, kSecond}, 1000));
  const tt_plan* plan = Await(41);
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->generation, 42);
  tt_link_release_plan(plan);
}

TEST_F(LocalLinkTest, ReplansAtOnceWhereThePlanWouldBreakTheLimit) {
  Open(2000);
  PutTapes();
  Report(SmallProfile({kFirst, kSecond}, 1000));
  const tt_plan* first = Await(0);
  ASSERT_NE(first, nullptr);
  const int64_t room = 2000 - first->step_peak_bytes;
  tt_link_release_plan(first);
  Report(SmallProfile({kFirst, kSecond}, 1000 + room + 1));
  const tt_plan* second = Await(1);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->generation, 2);
  EXPECT_LE(second->step_peak_bytes, 2000);
  EXPECT_THAT(second->reason, HasSubstr("above the limit of 2000"));
  tt_link_release_plan(second);
}

TEST_F(LocalLinkTest, SmallChangesDoNotChangeThePlan) {
  Open(2000);
  PutTapes();
  Report(SmallProfile({kFirst, kSecond}, 1000));
  const tt_plan* first = Await(0);
  ASSERT_NE(first, nullptr);
  tt_link_release_plan(first);
  // Less than 2 % of a peak between 1900 and 2000.
  for (int i = 0; i < 5; ++i) Report(SmallProfile({kFirst, kSecond}, 970));
  ExpectNoPlanBeside(1);
}

TEST_F(LocalLinkTest, ReplansWhereCostsHaveChangedForGoodAndAnotherPlanIsFaster) {
  // The first block may save 300 bytes: its first result or its second.
  Open(2100);
  PutTapes();
  const planner::MemoryProfile profile = SmallProfile({kFirst, kSecond}, 1000);
  Report(profile);
  const tt_plan* first = Await(0);
  ASSERT_NE(first, nullptr);
  EXPECT_GT(first->replay_seconds, 0);
  // What the plan replays has become dear, and what it saves cheap.
  std::vector<planner::TapeCosts> turned;
  for (size_t k = 0; k < 2; ++k) {
    const tt_block_plan& block = first->blocks[k];
    planner::TapeCosts costs{block.structure_hash, {0.1, 0.1, 0.1}, {0, 0, 0}};
    for (size_t i = 0; i < block.num_sites; ++i) costs.cost_seconds[block.sites[i].site - 10 * (k + 1) - 1] = 0.0001;
    turned.push_back(costs);
  }
  tt_link_release_plan(first);
  const tt_plan* second = nullptr;
  for (int i = 0; i < 20 && second == nullptr; ++i) {
    Report(profile, turned);
    second = Await(1, std::chrono::milliseconds(500));
  }
  ASSERT_NE(second, nullptr);
  EXPECT_THAT(second->reason, HasSubstr("replay time"));
  tt_link_release_plan(second);
}

TEST_F(LocalLinkTest, ATapeThatThePlannerRefusesIsNamedAndNothingElseHappens) {
  tapes_[kSecond].ops[1].reads = {99};
  Open(2000);
  PutTapes();
  Report(SmallProfile({kFirst, kSecond}, 1000));
  tt_link_state_info state;
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(tt_link_state(link_, &state), TT_LINK_OK);
    if (state.last_error[0] != 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_THAT(state.last_error, HasSubstr("layers.2"));
  EXPECT_EQ(state.connected, 1);
  EXPECT_EQ(state.plans_received, 0);
  EXPECT_EQ(tt_link_take_plan(link_, 0), nullptr);
}

TEST_F(LocalLinkTest, APlanOutlivesItsLink) {
  Open(0);
  PutTapes();
  Report(SmallProfile({kFirst, kSecond}, 1000));
  const tt_plan* plan = Await(0);
  ASSERT_NE(plan, nullptr);
  tt_link_close(link_, 0);
  link_ = nullptr;
  EXPECT_THAT(plan->blocks[1].name, StrEq("layers.1"));
  EXPECT_THAT(plan->etag, StrEq(std::string(plan->etag, 16)));
  tt_link_release_plan(plan);
}

TEST(LocalLinkOptions, BadOptionsAreRefusedWithAReason) {
  char error[256] = "";
  const auto refused = [&](tt_link_options options) {
    error[0] = 0;
    tt_link* link = tt_link_open(&options, error, sizeof(error));
    EXPECT_EQ(link, nullptr);
    return std::string(error);
  };
  tt_link_options options = MakeOptions("local", 0);
  options.rank = 1;
  EXPECT_THAT(refused(options), HasSubstr("rank = 1"));
  options = MakeOptions("local", -2);
  EXPECT_THAT(refused(options), HasSubstr("memory_limit_bytes = -2"));
  options = MakeOptions("local", 0);
  options.job = "two words";
  EXPECT_THAT(refused(options), HasSubstr("job must have"));
  options.job = nullptr;
  EXPECT_THAT(refused(options), HasSubstr("job must have"));
  EXPECT_THAT(refused(MakeOptions("somewhere", 0)), HasSubstr("local"));
  EXPECT_EQ(tt_link_open(nullptr, nullptr, 0), nullptr);
}

TEST_F(LocalLinkTest, BadNumbersStopAtTheDoor) {
  Open(0);
  BorrowedTape tape(tapes_[kFirst]);
  tt_op ops[3] = {tape.tape().ops[0], tape.tape().ops[1], tape.tape().ops[2]};
  ops[1].cost_seconds = std::nan("");
  tape.tape().ops = ops;
  EXPECT_EQ(tt_link_put_tape(link_, &tape.tape()), TT_LINK_INVALID_ARGUMENT);
  tt_link_state_info state;
  ASSERT_EQ(tt_link_state(link_, &state), TT_LINK_OK);
  EXPECT_THAT(state.last_error, HasSubstr("tape of block layers.1: ops[1].cost_seconds"));
  ops[1].cost_seconds = 0;
  tape.tape().consumed = {nullptr, 2};
  EXPECT_EQ(tt_link_put_tape(link_, &tape.tape()), TT_LINK_INVALID_ARGUMENT);

  planner::MemoryProfile profile = SmallProfile({kFirst}, 1000);
  BorrowedReport report(3, &profile);
  report.report().replay_seconds = std::numeric_limits<double>::infinity();
  EXPECT_EQ(tt_link_report_step(link_, &report.report()), TT_LINK_INVALID_ARGUMENT);
  report.report().replay_seconds = 0;
  report.report().step_peak_bytes = -1;
  EXPECT_EQ(tt_link_report_step(link_, &report.report()), TT_LINK_INVALID_ARGUMENT);
  report.report().step_peak_bytes = 0;
  report.report().num_blocks = 0;
  EXPECT_EQ(tt_link_report_step(link_, &report.report()), TT_LINK_INVALID_ARGUMENT);
  EXPECT_EQ(tt_link_put_tape(nullptr, &tape.tape()), TT_LINK_INVALID_ARGUMENT);
  EXPECT_EQ(tt_link_put_tape(link_, nullptr), TT_LINK_INVALID_ARGUMENT);
  EXPECT_EQ(tt_link_set_memory_limit(link_, -2), TT_LINK_INVALID_ARGUMENT);
}

// The second block saves 300 bytes and is fast, or nothing and is slow.
TEST_F(LocalLinkTest, ABlockWithOptionsIsPlannedBesideATapedOne) {
  planner::MemoryProfile profile = SmallProfile({kFirst, kSecond}, 1000);
  profile.blocks[1].instance.options = {{.saved_bytes = 0, .own_peak_bytes = 300, .seconds = 0.010, .label = "lean"},
                                        {.saved_bytes = 300, .own_peak_bytes = 3000, .seconds = 0, .label = "fast"}};
  Open(0);
  PutTapes();
  Report(profile);
  const tt_plan* least = Await(0);
  ASSERT_NE(least, nullptr);
  ASSERT_EQ(least->num_blocks, 2u);
  EXPECT_EQ(least->blocks[0].option, -1);
  EXPECT_EQ(least->blocks[1].option, 0);
  tt_link_release_plan(least);

  // Everything fits.
  ASSERT_EQ(tt_link_set_memory_limit(link_, 5000), TT_LINK_OK);
  const tt_plan* wide = Await(1);
  ASSERT_NE(wide, nullptr);
  EXPECT_EQ(wide->blocks[1].option, 1);
  EXPECT_EQ(wide->blocks[1].saved_bytes, 300);
  EXPECT_EQ(wide->replay_seconds, 0);
  tt_link_release_plan(wide);

  // Another measurement is held against the plan in force.
  profile.blocks[1].instance.options[1].saved_bytes = 4500;
  Report(profile);
  const tt_plan* changed = Await(2);
  ASSERT_NE(changed, nullptr);
  EXPECT_THAT(changed->reason, HasSubstr("above the limit of 5000"));
  EXPECT_EQ(changed->blocks[1].option, 0);
  tt_link_release_plan(changed);
}

}  // namespace
}  // namespace tidetape::link
