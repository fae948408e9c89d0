// Memory through the step: the committed plan's prediction beside what the worst rank measured.
#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/io/problem_io.h"
#include "planner/step/expected_peak.h"
#include "planner/step/step_memory.h"
#include "server/messages/plan_message.h"
#include "server/questions/job_queries.h"

namespace tidetape::server {
namespace {

// The rank with the largest step peak of those that measured a step; null where none did.
const RankSnapshot* WorstMeasured(const JobSnapshot& job) {
  const RankSnapshot* worst = nullptr;
  for (const RankSnapshot& rank : job.ranks) {
    if (rank.live == nullptr) continue;
    if (worst == nullptr || rank.live->step_peak_bytes > worst->live->step_peak_bytes) worst = &rank;
  }
  return worst;
}

// Live bytes where a block's forward, or its backward, begins and ends.
struct Ends {
  int64_t begin = 0;
  int64_t end = 0;
};

// One an interval of forwards and backwards, in order of time; of several micro-batches the largest. Empty where the marks are of
// another number of blocks.
std::vector<Ends> MeasuredEnds(const std::vector<int64_t>& live_bytes, size_t blocks) {
  // Two of each block's forward, in order; then two of each backward, in the opposite order.
  const size_t intervals = 2 * blocks;
  if (live_bytes.empty() || intervals == 0 || live_bytes.size() % (2 * intervals) != 0) return {};
  std::vector<Ends> ends(intervals);
  for (size_t mark = 0; mark < live_bytes.size(); mark += 2) {
    Ends& interval = ends[mark / 2 % intervals];
    interval = {std::max(interval.begin, live_bytes[mark]), std::max(interval.end, live_bytes[mark + 1])};
  }
  return ends;
}

}  // namespace

absl::StatusOr<v1::GetStepMemoryResponse> AnswerGetStepMemory(Job& job) {
  const auto current = CurrentPlan(job);
  if (!current.ok()) return current.status();
  const planner::PlanningProblem& problem = current->input.problem;
  const v1::Plan& plan = *current->plan;
  std::vector<planner::BlockMemory> blocks;
  for (const v1::BlockPlan& block : plan.blocks()) blocks.push_back({block.saved_bytes(), block.own_peak_bytes()});

  v1::GetStepMemoryResponse response;
  response.set_generation(plan.generation());
  response.set_predicted_step_peak_bytes(plan.step_peak_bytes());
  const JobSnapshot snapshot = job.Snapshot();
  const RankSnapshot* worst = WorstMeasured(snapshot);
  std::vector<Ends> measured;
  if (worst != nullptr) {
    response.set_measured_rank(worst->rank);
    response.set_measured_node(worst->node);
    response.set_measured_step(worst->live->step);
    response.set_measured_generation(worst->live->generation);
    response.set_measured_step_peak_bytes(worst->live->step_peak_bytes);
    measured = MeasuredEnds(worst->live->live_bytes, blocks.size());
  }
  auto ends = measured.begin();
  for (const planner::IntervalPeak& predicted : planner::IntervalPeaks(planner::BasesWithoutHeadroom(problem), blocks)) {
    v1::IntervalMemory* interval = response.add_intervals();
    *interval->mutable_place() = planner::ToProto(problem, predicted.place);
    interval->set_predicted_peak_bytes(predicted.bytes);
    if (predicted.place.block < 0 || ends == measured.end()) continue;
    interval->set_measured_begin_bytes(ends->begin);
    interval->set_measured_end_bytes(ends->end);
    ++ends;
  }
  return response;
}

}  // namespace tidetape::server
