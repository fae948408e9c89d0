#include "server/metrics/job_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/metrics/metrics_page.h"

namespace tidetape::server {
namespace {

using testing::HasSubstr;
using testing::Not;

// Rank k of `ranks`: node-k, step (k+1) s, peak 100 (k+1) bytes.
JobSnapshot RunningJob(const std::string& name, int ranks) {
  JobSnapshot job;
  job.summary.set_job(name);
  job.summary.set_state(v1::JobSummary::STATE_RUNNING);
  job.summary.set_world_size(ranks);
  job.summary.set_connected_ranks(ranks);
  job.summary.set_memory_limit_bytes(1300);
  job.summary.set_generation(4);
  job.summary.set_step(12);
  job.summary.set_predicted_peak_bytes(1250);
  job.summary.set_predicted_replay_seconds(0.5);
  job.plan = PlanSnapshot{.gap_ratio = 0.125, .feasible = true, .saved_bytes = 700, .least_peak_bytes = 900};
  for (int k = 0; k < ranks; ++k) {
    RankSnapshot rank;
    rank.rank = k;
    rank.connected = true;
    rank.reports = 10;
    rank.node = "node-" + std::to_string(k);
    rank.pod_namespace = "research";
    rank.pod = "train-" + std::to_string(k);
    rank.slurm_job_id = "77";
    rank.step_seconds = k + 1;
    rank.step_peak_bytes = 100 * (k + 1);
    job.ranks.push_back(rank);
  }
  return job;
}

class JobMetricsTest : public testing::Test {
 protected:
  std::string Page(const JobMetrics::Options& options = {}) const {
    const JobMetrics metrics(options, [this] { return jobs_; });
    return RenderMetrics({&metrics});
  }

  std::vector<JobSnapshot> jobs_;
};

TEST_F(JobMetricsTest, AJobShowsItsWorstRankItsPlanAndWhereItRuns) {
  jobs_ = {RunningJob("llama", 2)};
  jobs_[0].ranks[1].cannot_follow = true;
  const std::string page = Page();
  for (const char* line :
       {"tidetape_job_info{job=\"llama\",namespace=\"research\",pod=\"train-0\",node=\"node-0\",slurm_job_id=\"77\"} 1",
        "tidetape_job_state{job=\"llama\",state=\"running\"} 1", "tidetape_job_state{job=\"llama\",state=\"lost\"} 0",
        "tidetape_job_ranks{job=\"llama\"} 2", "tidetape_job_ranks_connected{job=\"llama\"} 2",
        "tidetape_job_ranks_without_plan{job=\"llama\"} 1", "tidetape_job_reports_total{job=\"llama\"} 20",
        "tidetape_job_memory_limit_bytes{job=\"llama\"} 1300", "tidetape_job_step_peak_bytes{job=\"llama\"} 200",
        "tidetape_job_step_seconds{job=\"llama\"} 2", "tidetape_job_generation{job=\"llama\"} 4",
        "tidetape_job_plan_gap_ratio{job=\"llama\"} 0.125", "tidetape_job_plan_feasible{job=\"llama\"} 1",
        "tidetape_job_predicted_saved_bytes{job=\"llama\"} 700", "tidetape_job_least_peak_bytes{job=\"llama\"} 900",
        "tidetape_rank_step_peak_bytes{job=\"llama\",rank=\"0\"} 100",
        "tidetape_rank_info{job=\"llama\",rank=\"1\",namespace=\"research\",pod=\"train-1\",node=\"node-1\"} 1"}) {
    EXPECT_THAT(page, HasSubstr(std::string("\n") + line + "\n"));
  }
}

TEST_F(JobMetricsTest, CollectivesShowTheSlowestRankAndThePacing) {
  jobs_ = {RunningJob("llama", 3)};
  jobs_[0].ranks[0].collectives = CollectiveSnapshot{0.25, 0.5, 1000, 0.75, 600, 4};
  jobs_[0].ranks[1].collectives = CollectiveSnapshot{0.5, 0.125, 1000, 0.75, 700, 3};
  v1::PacingPlan pacing;
  pacing.set_algorithm(v1::PacingPlan::ALGORITHM_RING);
  pacing.set_chunk_bytes(65536);
  pacing.set_puts_in_flight(4);
  pacing.set_chunk_gap_seconds(0.5);
  pacing.set_gather_seconds(2);
  jobs_[0].plan->pacing = pacing;
  const std::string page = Page();
  for (const char* line :
       {"tidetape_job_gather_seconds{job=\"llama\"} 0.5", "tidetape_job_reduce_seconds{job=\"llama\"} 0.5",
        "tidetape_job_covered_bytes{job=\"llama\"} 1000", "tidetape_job_covered_ratio{job=\"llama\"} 0.75",
        "tidetape_job_network_bytes{job=\"llama\"} 700", "tidetape_job_pacing_generation{job=\"llama\"} 3",
        "tidetape_job_pacing_info{job=\"llama\",algorithm=\"ring\"} 1", "tidetape_job_pacing_chunk_bytes{job=\"llama\"} 65536",
        "tidetape_job_pacing_puts_in_flight{job=\"llama\"} 4", "tidetape_job_pacing_gap_seconds{job=\"llama\"} 0.5",
        "tidetape_job_predicted_gather_seconds{job=\"llama\"} 2", "tidetape_rank_gather_seconds{job=\"llama\",rank=\"1\"} 0.5",
        "tidetape_rank_pacing_generation{job=\"llama\",rank=\"0\"} 4"}) {
    EXPECT_THAT(page, HasSubstr(std::string("\n") + line + "\n"));
  }
  // FSDP2's own collectives.
  EXPECT_THAT(page, Not(HasSubstr("tidetape_rank_gather_seconds{job=\"llama\",rank=\"2\"}")));
  jobs_ = {RunningJob("stock", 1)};
  EXPECT_THAT(Page(), Not(HasSubstr("tidetape_job_gather_seconds")));
  EXPECT_THAT(Page(), Not(HasSubstr("tidetape_job_pacing")));
}

TEST_F(JobMetricsTest, WhatIsNotKnownHasNoSeries) {
  jobs_ = {RunningJob("new", 1)};
  jobs_[0].ranks[0].reports = 0;
  jobs_[0].plan.reset();
  jobs_[0].summary.set_memory_limit_bytes(-1);
  const std::string page = Page();
  for (const char* name : {"tidetape_job_step_seconds", "tidetape_job_predicted_peak_bytes", "tidetape_job_memory_limit_bytes",
                           "tidetape_rank_step_seconds", "tidetape_job_peak_residual_ratio"}) {
    EXPECT_THAT(page, Not(HasSubstr(name)));
  }
  EXPECT_THAT(page, HasSubstr("tidetape_rank_connected{job=\"new\",rank=\"0\"} 1\n"));
}

TEST_F(JobMetricsTest, AnEndedJobKeepsItsStateAndAForgottenOneNothing) {
  jobs_ = {RunningJob("done", 1)};
  jobs_[0].summary.set_state(v1::JobSummary::STATE_ENDED);
  EXPECT_THAT(Page(), HasSubstr("tidetape_job_state{job=\"done\",state=\"ended\"} 1\n"));
  EXPECT_THAT(Page(), HasSubstr("tidetape_job_info{job=\"done\""));
  EXPECT_THAT(Page(), Not(HasSubstr("tidetape_job_step_peak_bytes")));
  EXPECT_THAT(Page(), Not(HasSubstr("tidetape_rank_")));
  jobs_.clear();
  EXPECT_THAT(Page(), Not(HasSubstr("done")));
  EXPECT_THAT(Page(), HasSubstr("tidetape_server_jobs 0\n"));
}

TEST_F(JobMetricsTest, TheCapOnJobsKeepsThoseThatRun) {
  jobs_ = {RunningJob("ended", 1), RunningJob("lost", 1), RunningJob("older", 1), RunningJob("newer", 1)};
  jobs_[0].summary.set_state(v1::JobSummary::STATE_ENDED);
  jobs_[0].last_heard = absl::FromUnixSeconds(9);
  jobs_[1].summary.set_connected_ranks(0);
  jobs_[2].last_heard = absl::FromUnixSeconds(1);
  jobs_[3].last_heard = absl::FromUnixSeconds(2);
  const std::vector<std::string> best_first = {"newer", "older", "lost", "ended"};
  for (size_t cap = 0; cap <= jobs_.size(); ++cap) {
    const std::string page = Page({.jobs = cap});
    for (size_t i = 0; i < best_first.size(); ++i) {
      EXPECT_EQ(page.find("job=\"" + best_first[i] + "\"") != std::string::npos, i < cap) << best_first[i] << " of " << cap;
    }
    EXPECT_THAT(page, HasSubstr("tidetape_server_jobs_left_out " + std::to_string(jobs_.size() - cap) + "\n"));
  }
}

TEST_F(JobMetricsTest, TheCapOnRanksLeavesTheJobsFiguresWhole) {
  jobs_ = {RunningJob("wide", 5)};
  const std::string page = Page({.ranks = 2});
  EXPECT_THAT(page, HasSubstr("tidetape_rank_step_seconds{job=\"wide\",rank=\"1\"} 2\n"));
  EXPECT_THAT(page, Not(HasSubstr("rank=\"2\"")));
  EXPECT_THAT(page, HasSubstr("tidetape_job_step_seconds{job=\"wide\"} 5\n"));
  EXPECT_THAT(page, HasSubstr("tidetape_server_ranks_left_out 3\n"));
}

TEST_F(JobMetricsTest, LongLabelsAreCutBetweenCharactersAndQuotesAreEscaped) {
  jobs_ = {RunningJob("quoted\"job", 1)};
  jobs_[0].ranks[0].node = std::string(127, 'n') + "é";  // its second byte is the 129th
  const std::string page = Page();
  EXPECT_THAT(page, HasSubstr("node=\"" + std::string(127, 'n') + "\""));
  EXPECT_THAT(page, HasSubstr("job=\"quoted\\\"job\""));
}

}  // namespace
}  // namespace tidetape::server
