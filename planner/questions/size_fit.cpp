#include "planner/questions/size_fit.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tidetape::planner {
namespace {

// A line that is off by no more than this share of the largest value is good enough.
constexpr double kLineTolerance = 0.01;

// All numbers of a problem that depend on size, in a fixed order.
template <typename Problem, typename Visit>
void VisitBytes(Problem& problem, Visit visit) {
  visit(problem.head_peak_bytes);
  visit(problem.optimizer_peak_bytes);
  for (auto& tape : problem.tapes) {
    for (auto& storage : tape.storages) visit(storage.bytes);
    for (auto& op : tape.ops) visit(op.replay_workspace_bytes);
    for (auto& event : tape.backward) {
      visit(event.gradient_live_bytes);
      visit(event.start_live_bytes);
    }
  }
  for (auto& block : problem.blocks) {
    visit(block.forward_base_bytes);
    visit(block.backward_base_bytes);
    visit(block.backward_transient_bytes);
    for (auto& bytes : block.gradient_live_bytes) visit(bytes);
    for (auto& bytes : block.start_live_bytes) visit(bytes);
    for (auto& option : block.options) {
      visit(option.saved_bytes);
      visit(option.own_peak_bytes);
    }
  }
}

template <typename Problem, typename Visit>
void VisitSeconds(Problem& problem, Visit visit) {
  for (auto& tape : problem.tapes) {
    for (auto& op : tape.ops) visit(op.cost_seconds);
    for (auto& value : tape.values) visit(value.copy_seconds);
  }
  for (auto& block : problem.blocks) {
    for (auto& option : block.options) visit(option.seconds);
  }
}

bool SameBlocks(const PlanningProblem& a, const PlanningProblem& b) {
  const auto same_op = [](const Op& x, const Op& y) { return x.name == y.name && x.reads == y.reads && x.writes == y.writes; };
  const auto same_storage = [](const Storage& x, const Storage& y) { return x.site == y.site && x.kind == y.kind; };
  const auto same_tape = [&](const BlockTape& x, const BlockTape& y) {
    return std::equal(x.ops.begin(), x.ops.end(), y.ops.begin(), y.ops.end(), same_op) &&
           std::equal(x.storages.begin(), x.storages.end(), y.storages.begin(), y.storages.end(), same_storage) &&
           x.consumed == y.consumed && x.values.size() == y.values.size() && x.backward.size() == y.backward.size();
  };
  const auto same_block = [](const BlockInstance& x, const BlockInstance& y) {
    return x.tape == y.tape && x.options.size() == y.options.size() &&
           x.gradient_live_bytes.size() == y.gradient_live_bytes.size() && x.start_live_bytes.size() == y.start_live_bytes.size();
  };
  return std::equal(a.tapes.begin(), a.tapes.end(), b.tapes.begin(), b.tapes.end(), same_tape) &&
         std::equal(a.blocks.begin(), a.blocks.end(), b.blocks.begin(), b.blocks.end(), same_block);
}

double Weighted(const std::vector<double>& weights, const std::vector<double>& values) {
  return std::inner_product(weights.begin(), weights.end(), values.begin(), 0.0);
}

}  // namespace

absl::StatusOr<SizeFit> SizeFit::Create(std::vector<SizedRun> runs) {
  if (runs.size() < 2) return absl::InvalidArgumentError("a fit needs runs at two sizes or more");
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!(runs[i].size > 0)) return absl::InvalidArgumentError(absl::StrCat("runs[", i, "].size must be above 0"));
    if (!SameBlocks(runs[i].problem, runs[0].problem)) {
      return absl::InvalidArgumentError(absl::StrCat("runs[", i, "] is of other blocks than runs[0]"));
    }
    for (size_t j = 0; j < i; ++j) {
      if (runs[j].size == runs[i].size) return absl::InvalidArgumentError(absl::StrCat("two runs are of size ", runs[i].size));
    }
  }
  SizeFit fit(std::move(runs));
  const auto count = static_cast<double>(fit.runs_.size());
  for (const SizedRun& run : fit.runs_) fit.mean_ += run.size / count;
  double square = 0, cube = 0;
  for (const SizedRun& run : fit.runs_) {
    const double x = run.size - fit.mean_;
    square += x * x;
    cube += x * x * x;
  }
  fit.slope_ = cube / square;
  fit.offset_ = square / count;
  fit.norms_.assign(3, 0);
  for (const SizedRun& run : fit.runs_) {
    const std::vector<double> values = fit.PolynomialsAt(run.size);
    for (size_t k = 0; k < values.size(); ++k) fit.norms_[k] += values[k] * values[k];
  }
  for (const SizedRun& run : fit.runs_) {
    size_t at = 0;
    VisitBytes(run.problem, [&](const int64_t& bytes) {
      fit.bytes_.resize(std::max(fit.bytes_.size(), at + 1));
      fit.bytes_[at++].values.push_back(static_cast<double>(bytes));
    });
    at = 0;
    VisitSeconds(run.problem, [&](const double& seconds) {
      fit.seconds_.resize(std::max(fit.seconds_.size(), at + 1));
      fit.seconds_[at++].values.push_back(seconds);
    });
    fit.plain_.values.push_back(run.plain_step_seconds);
  }
  for (Series& series : fit.bytes_) fit.FitSeries(series);
  for (Series& series : fit.seconds_) fit.FitSeries(series);
  fit.FitSeries(fit.plain_);
  fit.bytes_residual_ = fit.Residual(fit.bytes_);
  fit.seconds_residual_ = fit.Residual(fit.seconds_);
  return fit;
}

std::vector<double> SizeFit::PolynomialsAt(double size) const {
  const double x = size - mean_;
  return {1, x, x * x - slope_ * x - offset_};
}

std::vector<double> SizeFit::WeightsAt(double size, int degree) const {
  const std::vector<double> here = PolynomialsAt(size);
  std::vector<double> weights;
  for (const SizedRun& run : runs_) {
    const std::vector<double> there = PolynomialsAt(run.size);
    double weight = 0;
    for (int k = 0; k <= degree; ++k) weight += here[k] * there[k] / norms_[k];
    weights.push_back(weight);
  }
  return weights;
}

void SizeFit::FitSeries(Series& series) {
  if (runs_.size() < 3) return;
  const double largest = std::abs(
      *std::max_element(series.values.begin(), series.values.end(), [](double a, double b) { return std::abs(a) < std::abs(b); }));
  for (size_t i = 0; i < runs_.size(); ++i) {
    if (std::abs(Weighted(WeightsAt(runs_[i].size, 1), series.values) - series.values[i]) > kLineTolerance * largest) {
      series.degree = degree_ = 2;
      return;
    }
  }
}

std::optional<double> SizeFit::Residual(const std::vector<Series>& all) const {
  if (static_cast<int>(runs_.size()) <= degree_ + 1) return std::nullopt;
  double off = 0, measured = 0;
  for (size_t i = 0; i < runs_.size(); ++i) {
    const std::vector<double> weights[] = {WeightsAt(runs_[i].size, 1), WeightsAt(runs_[i].size, 2)};
    for (const Series& series : all) {
      off += std::abs(Weighted(weights[series.degree - 1], series.values) - series.values[i]);
      measured += std::abs(series.values[i]);
    }
  }
  return measured == 0 ? 0 : off / measured;
}

PlanningProblem SizeFit::At(double size) const {
  const std::vector<double> line = WeightsAt(size, 1);
  const std::vector<double> parabola = degree_ == 2 ? WeightsAt(size, 2) : line;
  const auto value = [&](const Series& series) {
    return std::max(0.0, Weighted(series.degree == 1 ? line : parabola, series.values));
  };
  PlanningProblem problem = runs_.back().problem;
  size_t at = 0;
  VisitBytes(problem, [&](int64_t& bytes) { bytes = std::llround(value(bytes_[at++])); });
  at = 0;
  VisitSeconds(problem, [&](double& seconds) { seconds = value(seconds_[at++]); });
  return problem;
}

double SizeFit::PlainStepSeconds(double size) const {
  for (const double seconds : plain_.values) {
    if (seconds <= 0) return 0;
  }
  return std::max(0.0, Weighted(WeightsAt(size, plain_.degree), plain_.values));
}

}  // namespace tidetape::planner
