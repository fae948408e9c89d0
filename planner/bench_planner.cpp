// Times of the planner on synthetic layer-like tapes, as one JSON object on the last line:
//   {"hull_ms": {"1000", "10000", "100000"}, "step_plan_94x1000_s", "worst_gap_ratio", "worst_gap_of_full_recompute",
//   "bytes_per_op"}
//
// hull_ms is the whole hull from a tape in memory: index, cut graph and all vertices (medians; all times
// are CPU time of the one thread). step_plan_94x1000_s is the hulls of 94
// distinct tapes of 1,000 ops and step plans at 20 limits between the least peak and that of keeping everything; worst_gap_ratio is
// the largest certified gap among these plans, relative to the bound, and worst_gap_of_full_recompute the largest relative to the
// seconds of replaying all ops. bytes_per_op is the most heap memory that a hull of 100,000 ops takes above its tape.
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "planner/frontier.h"
#include "planner/planner.h"
#include "planner/step_planner.h"
#include "planner/tape_graph.h"
#include "planner/tape_index.h"
#include "planner/testing/random_tape.h"

namespace {

std::atomic<int64_t> heap_bytes{0};
std::atomic<int64_t> heap_peak_bytes{0};

}  // namespace

void* operator new(size_t size) {
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  const int64_t now = heap_bytes += malloc_usable_size(memory);
  if (now > heap_peak_bytes) heap_peak_bytes = now;
  return memory;
}

void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  heap_bytes -= malloc_usable_size(memory);
  std::free(memory);
}

void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace tidetape::planner {
namespace {

double ThreadCpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

double SecondsOf(const auto& work) {
  const double start = ThreadCpuSeconds();
  work();
  return ThreadCpuSeconds() - start;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

size_t HullVertices(const BlockTape& tape) {
  const TapeIndex index(tape);
  return Frontier(*TapeGraph::Build(index)).vertices().size();
}

PlanningProblem LayersProblem(int layers, int ops) {
  std::mt19937_64 random(94);
  PlanningProblem problem;
  for (int l = 0; l < layers; ++l) {
    problem.tapes.push_back(LayerTape(random, ops));
    problem.blocks.push_back({.name = "layers." + std::to_string(l), .tape = l});
  }
  return problem;
}

double AllOpsSeconds(const PlanningProblem& problem) {
  double seconds = 0;
  for (const BlockTape& tape : problem.tapes) {
    for (const Op& op : tape.ops) seconds += op.cost_seconds;
  }
  return seconds;
}

void Main() {
  std::printf("synthetic layer-like tapes; no recorded model is measured here\n");
  std::string hulls;
  double bytes_per_op = 0;
  for (const auto& [ops, runs] : std::vector<std::pair<int, int>>{{1000, 101}, {10000, 21}, {100000, 5}}) {
    std::vector<double> milliseconds;
    size_t vertices = 0;
    for (int run = 0; run < runs; ++run) {
      std::mt19937_64 random(run);
      const BlockTape tape = LayerTape(random, ops);
      const int64_t before = heap_peak_bytes = heap_bytes.load();
      milliseconds.push_back(1e3 * SecondsOf([&] { vertices = HullVertices(tape); }));
      bytes_per_op = 1.0 * (heap_peak_bytes - before) / ops;
    }
    std::printf("hull of %d ops: median %.3f ms over %d tapes, %zu vertices in the last\n", ops, Median(milliseconds), runs,
                vertices);
    char text[64];
    std::snprintf(text, sizeof(text), "%s\"%d\": %.4g", hulls.empty() ? "" : ", ", ops, Median(milliseconds));
    hulls += text;
  }

  const PlanningProblem problem = LayersProblem(94, 1000);
  const double full = AllOpsSeconds(problem);
  constexpr int kLimits = 20;
  std::vector<double> runs;
  runs.reserve(3);
  double worst_ratio = 0, worst_share = 0;
  for (int run = 0; run < 3; ++run) {
    runs.push_back(SecondsOf([&] {
      const auto planner = *StepPlanner::Create(problem);
      const int64_t least = planner->least_peak_bytes(), most = planner->Plan(kUnlimitedBytes).step_peak_bytes;
      for (int i = 0; i < kLimits; ++i) {
        const StepPlan plan = planner->Plan(least + (most - least) / kLimits * i);
        worst_ratio = std::max(worst_ratio, plan.gap_ratio);
        worst_share = std::max(worst_share, (plan.replay_seconds - plan.lower_bound_seconds) / full);
        if (run == 0) {
          std::printf("limit %5.1f %%: replay %.6f s, bound %.6f s, gap %.4f %% (%.4f %% of replaying everything)\n",
                      100.0 * i / kLimits, plan.replay_seconds, plan.lower_bound_seconds, 100 * plan.gap_ratio,
                      100 * (plan.replay_seconds - plan.lower_bound_seconds) / full);
        }
      }
    }));
  }
  std::printf(
      "{\"hull_ms\": {%s}, \"step_plan_94x1000_s\": %.4g, \"worst_gap_ratio\": %.4g, \"worst_gap_of_full_recompute\": %.4g, "
      "\"bytes_per_op\": %.4g}\n",
      hulls.c_str(), Median(runs), worst_ratio, worst_share, bytes_per_op);
}

}  // namespace
}  // namespace tidetape::planner

int main() { tidetape::planner::Main(); }
