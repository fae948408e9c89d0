// Times and gaps of the planner, as one JSON object on the last line:
//   {"hull_ms": {"1000", "10000", "100000"}, "step_plan_94x1000_s", "worst_gap_ratio", "bytes_per_op", "rivals": {policy: ratio},
//   "recorded": {file: {"worst_gap_of_full_recompute", "gaps_of_full_recompute": [...], "rivals": {policy: ratio}}}}
//
// hull_ms is the whole hull of a synthetic layer-like tape in memory: index, cut graph and all vertices (medians; all times are CPU
// time of the one thread). step_plan_94x1000_s is the hulls of 94 distinct tapes of 1,000 ops and quick step plans at 20 limits
// between the least peak and that of keeping everything. bytes_per_op is the most heap memory that a hull of 100,000 ops takes
// above its tape. Gaps are those of plans at 20 limits on the problem files given as arguments (or else those in
// planner/testing/recorded), with some effort spent on closing them, as shares of the time of replaying everything;
// worst_gap_ratio is the largest of them. A rival's ratio is its replay time over that of the planner's plan with the rival's step
// peak as the limit, the median over the problem's limits (policies.h); null where only the planner's is 0.
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/io/problem_io.h"
#include "planner/planner.h"
#include "planner/questions/policies.h"
#include "planner/step/step_planner.h"
#include "planner/tape/frontier.h"
#include "planner/tape/tape_graph.h"
#include "planner/tape/tape_index.h"
#include "planner/testing/random_tape.h"

namespace {

// Not while times are taken. There is one thread.
bool metered = false;
int64_t heap_bytes = 0;
int64_t heap_peak_bytes = 0;

}  // namespace

void* operator new(size_t size) {
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  if (metered) {
    heap_bytes += malloc_usable_size(memory);
    heap_peak_bytes = std::max(heap_peak_bytes, heap_bytes);
  }
  return memory;
}

void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  if (metered) heap_bytes -= malloc_usable_size(memory);
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

constexpr int kLimits = 20;
// Visits of an op that a recorded problem's plan may spend on its gap.
constexpr int64_t kEffort = 20'000'000;
constexpr char kRecorded[] = "planner/testing/recorded";

std::vector<int64_t> LimitsOf(StepPlanner& planner) {
  const int64_t least = planner.least_peak_bytes(), most = planner.Plan(kUnlimitedBytes).step_peak_bytes;
  std::vector<int64_t> limits;
  limits.reserve(kLimits);
  for (int i = 0; i < kLimits; ++i) limits.push_back(least + (most - least) * i / kLimits);
  return limits;
}

std::string Number(double value) { return std::isfinite(value) ? absl::StrCat(value) : "null"; }

// {"policy": median ratio, ...}
std::string RivalsJson(PlanningProblem problem) {
  const auto planner = *StepPlanner::Create(problem);
  std::vector<std::string> entries;
  for (Policy policy : kPolicies) {
    std::vector<double> ratios;
    for (int64_t limit : LimitsOf(*planner)) {
      problem.memory_limit_bytes = limit;
      const auto rival = PlanByPolicy(*planner, problem, policy);
      if (!rival.ok() || rival->replay_seconds == 0) continue;
      // Policies without a budget are looked at once, at the peak that they have.
      const bool has_budget = policy == Policy::kBytesOnlyBudget || policy == Policy::kAdditiveKnapsack;
      if (has_budget && !rival->feasible) continue;
      ratios.push_back(rival->replay_seconds / planner->Plan(rival->step_peak_bytes).replay_seconds);
      if (!has_budget) break;
    }
    entries.push_back(absl::StrCat("\"", PolicyName(policy), "\": ", ratios.empty() ? "null" : Number(Median(ratios))));
  }
  return absl::StrCat("{", absl::StrJoin(entries, ", "), "}");
}

// Gaps at all limits; the worst as well.
std::string RecordedJson(const std::string& path, double& worst) {
  const auto problem = ReadProblemFile(path);
  if (!problem.ok()) return absl::StrCat("{\"error\": \"", problem.status().message(), "\"}");
  const auto planner = *StepPlanner::Create(*problem);
  const double full = planner->full_seconds();
  std::vector<std::string> gaps;
  double worst_here = 0;
  const double seconds = SecondsOf([&] {
    for (int64_t limit : LimitsOf(*planner)) {
      const StepPlan plan = planner->PlanClosely(limit, {.visits = kEffort});
      const double gap = (plan.replay_seconds - plan.lower_bound_seconds) / full;
      worst_here = std::max(worst_here, gap);
      gaps.push_back(absl::StrCat(gap));
    }
  });
  std::printf("%s: %zu blocks, gaps closed to %.4f %% in %.1f s\n", path.c_str(), problem->blocks.size(), 100 * worst_here,
              seconds);
  worst = std::max(worst, worst_here);
  return absl::StrCat("{\"worst_gap_of_full_recompute\": ", worst_here, ", \"gaps_of_full_recompute\": [",
                      absl::StrJoin(gaps, ", "), "], \"rivals\": ", RivalsJson(*problem), "}");
}

std::vector<std::string> RecordedFiles() {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(kRecorded, error)) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

// The most heap memory that it has at once.
int64_t MostBytesOf(const std::function<void()>& work) {
  heap_bytes = heap_peak_bytes = 0;
  metered = true;
  work();
  metered = false;
  return heap_peak_bytes;
}

void Main(std::vector<std::string> files) {
  std::string hulls;
  double bytes_per_op = 0;
  for (const auto& [ops, runs] : std::vector<std::pair<int, int>>{{1000, 101}, {10000, 21}, {100000, 5}}) {
    std::vector<double> milliseconds;
    size_t vertices = 0;
    for (int run = 0; run < runs; ++run) {
      std::mt19937_64 random(run);
      const BlockTape tape = LayerTape(random, ops);
      milliseconds.push_back(1e3 * SecondsOf([&] { vertices = HullVertices(tape); }));
      if (run + 1 == runs) bytes_per_op = 1.0 * MostBytesOf([&] { HullVertices(tape); }) / ops;
    }
    std::printf("hull of %d ops: median %.3f ms over %d tapes, %zu vertices in the last\n", ops, Median(milliseconds), runs,
                vertices);
    char text[64];
    std::snprintf(text, sizeof(text), "%s\"%d\": %.4g", hulls.empty() ? "" : ", ", ops, Median(milliseconds));
    hulls += text;
  }

  const PlanningProblem problem = LayersProblem(94, 1000);
  std::vector<double> runs;
  runs.reserve(5);
  for (int run = 0; run < 5; ++run) {
    runs.push_back(SecondsOf([&] {
      const auto planner = *StepPlanner::Create(problem);
      for (int64_t limit : LimitsOf(*planner)) planner->Plan(limit);
    }));
  }
  std::printf("94 x 1000 ops, plans at %d limits: median %.3f s\n", kLimits, Median(runs));

  if (files.empty()) files = RecordedFiles();
  double worst = 0;
  std::vector<std::string> recorded;
  recorded.reserve(files.size());
  for (const std::string& file : files) {
    recorded.push_back(absl::StrCat("\"", std::filesystem::path(file).stem().string(), "\": ", RecordedJson(file, worst)));
  }
  std::printf(
      "{\"hull_ms\": {%s}, \"step_plan_94x1000_s\": %.4g, \"worst_gap_ratio\": %.4g, \"bytes_per_op\": %.4g, \"rivals\": %s, "
      "\"recorded\": {%s}}\n",
      hulls.c_str(), Median(runs), worst, bytes_per_op, RivalsJson(LayersProblem(12, 200)).c_str(),
      absl::StrJoin(recorded, ", ").c_str());
}

}  // namespace
}  // namespace tidetape::planner

int main(int argc, char** argv) { tidetape::planner::Main({argv + 1, argv + argc}); }
