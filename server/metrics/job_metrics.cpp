#include "server/metrics/job_metrics.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"

namespace tidetape::server {
namespace {

using Labels = std::vector<prometheus::ClientMetric::Label>;
using prometheus::MetricType;
using State = v1::JobSummary;

// Label values of agents are cut here.
constexpr size_t kLongestLabel = 128;

// Not in the middle of a character: the continuation bytes of UTF-8 begin with 10.
std::string Cut(const std::string& text) {
  if (text.size() <= kLongestLabel) return text;
  size_t end = kLongestLabel;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

// Families in the order in which they were first named.
class Families {
 public:
  void Gauge(const std::string& name, const std::string& help, Labels labels, double value) {
    Add(name, help, MetricType::Gauge, std::move(labels)).gauge.value = value;
  }
  void Counter(const std::string& name, const std::string& help, Labels labels, double value) {
    Add(name, help, MetricType::Counter, std::move(labels)).counter.value = value;
  }

  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  prometheus::ClientMetric& Add(const std::string& name, const std::string& help, MetricType type, Labels labels) {
    const auto [position, is_new] = positions_.try_emplace(name, families_.size());
    if (is_new) families_.push_back({name, help, type, {}});
    prometheus::ClientMetric& metric = families_[position->second].metric.emplace_back();
    metric.label = std::move(labels);
    return metric;
  }

  std::map<std::string, size_t> positions_;
  std::vector<prometheus::MetricFamily> families_;
};

bool HasEnded(const JobSnapshot& job) { return job.summary.state() == State::STATE_ENDED; }

// STATE_RUNNING is "running".
std::string StateName(State::State state) { return absl::AsciiStrToLower(State::State_Name(state).substr(sizeof("STATE_") - 1)); }

// Those that run come first, then those heard of last; names settle the rest, so that a scrape repeats itself.
bool IsMoreTelling(const JobSnapshot& a, const JobSnapshot& b) {
  const auto key = [](const JobSnapshot& job) { return std::tuple(HasEnded(job), job.summary.connected_ranks() == 0); };
  if (key(a) != key(b)) return key(a) < key(b);
  if (a.last_heard != b.last_heard) return a.last_heard > b.last_heard;
  return a.summary.job() < b.summary.job();
}

// The largest of all ranks that have reported.
template <typename Field>
double Worst(const JobSnapshot& job, Field field) {
  double worst = 0;
  for (const RankSnapshot& rank : job.ranks) {
    if (rank.reports > 0) worst = std::max(worst, static_cast<double>(rank.*field));
  }
  return worst;
}

void AddIdentity(const JobSnapshot& job, const std::string& name, Families& out) {
  const RankSnapshot first = job.ranks.empty() ? RankSnapshot() : job.ranks.front();
  out.Gauge("tidetape_job_info", "1, with where the job's first rank runs.",
            {{"job", name},
             {"namespace", Cut(first.pod_namespace)},
             {"pod", Cut(first.pod)},
             {"node", Cut(first.node)},
             {"slurm_job_id", Cut(first.slurm_job_id)}},
            1);
  for (const auto state :
       {State::STATE_GATHERING, State::STATE_SWITCHING, State::STATE_RUNNING, State::STATE_LOST, State::STATE_ENDED}) {
    out.Gauge("tidetape_job_state", "1 for the state that the job is in, 0 for the others.",
              {{"job", name}, {"state", StateName(state)}}, job.summary.state() == state ? 1 : 0);
  }
}

void AddProgress(const JobSnapshot& job, const std::string& name, Families& out) {
  const Labels labels = {{"job", name}};
  const v1::JobSummary& summary = job.summary;
  out.Gauge("tidetape_job_ranks", "Ranks that the job has.", labels, summary.world_size());
  out.Gauge("tidetape_job_ranks_connected", "Ranks that are connected.", labels, summary.connected_ranks());
  const auto refusing = std::count_if(job.ranks.begin(), job.ranks.end(), [](const auto& rank) { return rank.cannot_follow; });
  out.Gauge("tidetape_job_ranks_without_plan", "Ranks that cannot follow the committed plan.", labels,
            static_cast<double>(refusing));
  int64_t reports = 0;
  for (const RankSnapshot& rank : job.ranks) reports += rank.reports;
  out.Counter("tidetape_job_reports_total", "Step reports of all ranks since this start of the job.", labels,
              static_cast<double>(reports));
  out.Gauge("tidetape_job_planning_failed", "1 where the last attempt to plan failed.", labels, job.planning_failed ? 1 : 0);
  if (summary.memory_limit_bytes() > 0) {
    out.Gauge("tidetape_job_memory_limit_bytes", "Limit on the step peak, where the job has one.", labels,
              static_cast<double>(summary.memory_limit_bytes()));
  }
  if (reports == 0) return;
  const auto worst = [&](const char* metric, const char* help, auto field) { out.Gauge(metric, help, labels, Worst(job, field)); };
  out.Gauge("tidetape_job_step", "Newest step that was reported.", labels, static_cast<double>(summary.step()));
  worst("tidetape_job_step_seconds", "Time of the newest step, of the slowest rank.", &RankSnapshot::step_seconds);
  worst("tidetape_job_replay_seconds", "Replay time of the newest step, of the worst rank.", &RankSnapshot::replay_seconds);
  worst("tidetape_job_agent_seconds", "The agent's own time in the newest step, of the worst rank.", &RankSnapshot::agent_seconds);
  worst("tidetape_job_step_peak_bytes", "Measured peak of the newest step, of the worst rank.", &RankSnapshot::step_peak_bytes);
  worst("tidetape_job_saved_bytes", "Bytes kept for backward in the newest step, of the worst rank.", &RankSnapshot::saved_bytes);
  worst("tidetape_job_replayed_ops", "Ops replayed in the newest step, of the worst rank.", &RankSnapshot::replayed_ops);
  worst("tidetape_job_demoted_ops", "Ops that could not be replayed and are kept, of the worst rank.", &RankSnapshot::demoted_ops);
}

void AddCollectives(const JobSnapshot& job, const std::string& name, Families& out) {
  const Labels labels = {{"job", name}};
  CollectiveSnapshot worst;
  bool any = false;
  for (const RankSnapshot& rank : job.ranks) {
    if (rank.reports == 0 || !rank.collectives.has_value()) continue;
    const CollectiveSnapshot& own = *rank.collectives;
    worst.gather_seconds = std::max(worst.gather_seconds, own.gather_seconds);
    worst.reduce_seconds = std::max(worst.reduce_seconds, own.reduce_seconds);
    worst.covered_bytes = std::max(worst.covered_bytes, own.covered_bytes);
    worst.covered_ratio = any ? std::min(worst.covered_ratio, own.covered_ratio) : own.covered_ratio;
    worst.network_bytes = std::max(worst.network_bytes, own.network_bytes);
    worst.pacing_generation = any ? std::min(worst.pacing_generation, own.pacing_generation) : own.pacing_generation;
    any = true;
  }
  if (any) {
    out.Gauge("tidetape_job_gather_seconds", "Time in all-gathers of the newest step, waiting included, of the slowest rank.",
              labels, worst.gather_seconds);
    out.Gauge("tidetape_job_reduce_seconds", "Time in reduce-scatters of the newest step, waiting included, of the slowest rank.",
              labels, worst.reduce_seconds);
    out.Gauge("tidetape_job_covered_bytes", "Bytes gathered without layout copies in the newest step, of the rank with the most.",
              labels, static_cast<double>(worst.covered_bytes));
    out.Gauge("tidetape_job_covered_ratio", "Share of the model's gathered bytes that goes without layout copies.", labels,
              worst.covered_ratio);
    out.Gauge("tidetape_job_network_bytes",
              "Bytes that all-gathers sent to other nodes in the newest step, of the rank with the most.", labels,
              static_cast<double>(worst.network_bytes));
    out.Gauge("tidetape_job_pacing_generation", "Generation whose pacing is in force on all ranks; 0 for that of the start.",
              labels, static_cast<double>(worst.pacing_generation));
  }
  if (!job.plan.has_value() || !job.plan->pacing.has_value()) return;
  const v1::PacingPlan& pacing = *job.plan->pacing;
  out.Gauge("tidetape_job_pacing_info", "1, with the algorithm of the committed pacing.",
            {{"job", name}, {"algorithm", pacing.algorithm() == v1::PacingPlan::ALGORITHM_RING ? "ring" : "recursive_doubling"}},
            1);
  out.Gauge("tidetape_job_pacing_chunk_bytes", "Chunk of the committed pacing.", labels, static_cast<double>(pacing.chunk_bytes()));
  out.Gauge("tidetape_job_pacing_puts_in_flight", "Chunks in flight to one peer under the committed pacing; 256 for no bound.",
            labels, pacing.puts_in_flight());
  out.Gauge("tidetape_job_pacing_gap_seconds", "Time between two chunks under the committed pacing.", labels,
            pacing.chunk_gap_seconds());
  out.Gauge("tidetape_job_predicted_gather_seconds", "Time to gather all units once, as the committed pacing predicts.", labels,
            pacing.gather_seconds());
}

void AddPlan(const JobSnapshot& job, const std::string& name, Families& out) {
  const Labels labels = {{"job", name}};
  const v1::JobSummary& summary = job.summary;
  // 0 before the first plan, so that a change is one.
  out.Gauge("tidetape_job_generation", "Generation of the committed plan; 0 before the first.", labels,
            static_cast<double>(summary.generation()));
  if (!job.plan.has_value()) return;
  out.Gauge("tidetape_job_predicted_peak_bytes", "Step peak that the plan predicts.", labels,
            static_cast<double>(summary.predicted_peak_bytes()));
  out.Gauge("tidetape_job_predicted_replay_seconds", "Replay time of a step that the plan predicts.", labels,
            summary.predicted_replay_seconds());
  out.Gauge("tidetape_job_predicted_saved_bytes", "Bytes that the plan keeps.", labels, static_cast<double>(job.plan->saved_bytes));
  out.Gauge("tidetape_job_least_peak_bytes", "The least step peak of any plan.", labels,
            static_cast<double>(job.plan->least_peak_bytes));
  out.Gauge("tidetape_job_plan_gap_ratio", "How much the plan's replay time may exceed the best possible, by proof.", labels,
            job.plan->gap_ratio);
  out.Gauge("tidetape_job_plan_feasible", "0 where even the least-memory plan exceeds the limit.", labels,
            job.plan->feasible ? 1 : 0);
  if (summary.has_peak_residual_ratio()) {
    out.Gauge("tidetape_job_peak_residual_ratio", "(measured - predicted) / predicted step peak, of the worst rank.", labels,
              summary.peak_residual_ratio());
  }
}

void AddRank(const RankSnapshot& rank, const std::string& name, Families& out) {
  const std::string number = std::to_string(rank.rank);
  const Labels labels = {{"job", name}, {"rank", number}};
  out.Gauge(
      "tidetape_rank_info", "1, with where the rank runs.",
      {{"job", name}, {"rank", number}, {"namespace", Cut(rank.pod_namespace)}, {"pod", Cut(rank.pod)}, {"node", Cut(rank.node)}},
      1);
  out.Gauge("tidetape_rank_connected", "1 where the rank is connected.", labels, rank.connected ? 1 : 0);
  if (rank.reports == 0) return;
  out.Counter("tidetape_rank_reports_total", "Step reports since this start of the job.", labels,
              static_cast<double>(rank.reports));
  out.Gauge("tidetape_rank_step_seconds", "Time of the newest step.", labels, rank.step_seconds);
  out.Gauge("tidetape_rank_replay_seconds", "Replay time of the newest step.", labels, rank.replay_seconds);
  out.Gauge("tidetape_rank_step_peak_bytes", "Measured peak of the newest step.", labels,
            static_cast<double>(rank.step_peak_bytes));
  if (!rank.collectives.has_value()) return;
  out.Gauge("tidetape_rank_gather_seconds", "Time in all-gathers of the newest step, waiting included.", labels,
            rank.collectives->gather_seconds);
  out.Gauge("tidetape_rank_reduce_seconds", "Time in reduce-scatters of the newest step, waiting included.", labels,
            rank.collectives->reduce_seconds);
  out.Gauge("tidetape_rank_pacing_generation", "Generation whose pacing is in force; 0 for that of the start.", labels,
            static_cast<double>(rank.collectives->pacing_generation));
}

}  // namespace

JobMetrics::JobMetrics(const Options& options, std::function<std::vector<JobSnapshot>()> jobs)
    : options_(options), jobs_(std::move(jobs)) {}

std::vector<prometheus::MetricFamily> JobMetrics::Collect() const {
  std::vector<JobSnapshot> jobs = jobs_();
  std::sort(jobs.begin(), jobs.end(), IsMoreTelling);
  const size_t told = std::min(jobs.size(), options_.jobs);
  Families out;
  size_t ranks_left_out = 0;
  for (size_t i = 0; i < told; ++i) {
    const JobSnapshot& job = jobs[i];
    const std::string name = job.summary.job();
    AddIdentity(job, name, out);
    if (HasEnded(job)) continue;
    AddProgress(job, name, out);
    AddPlan(job, name, out);
    AddCollectives(job, name, out);
    const size_t ranks = std::min(job.ranks.size(), options_.ranks);
    ranks_left_out += job.ranks.size() - ranks;
    for (size_t k = 0; k < ranks; ++k) AddRank(job.ranks[k], name, out);
  }
  out.Gauge("tidetape_server_jobs", "Jobs that the server knows.", {}, static_cast<double>(jobs.size()));
  out.Gauge("tidetape_server_jobs_left_out", "Jobs without series, because there are too many.", {},
            static_cast<double>(jobs.size() - told));
  out.Gauge("tidetape_server_ranks_left_out", "Ranks without series of their own, because their jobs have too many.", {},
            static_cast<double>(ranks_left_out));
  return out.Take();
}

}  // namespace tidetape::server
