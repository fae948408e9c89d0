// Bytes and costs of a step as functions of its size (a batch, a length of sequence), from runs of the same blocks at several
// sizes.
//
// Every number of the problem is fitted for itself by least squares: by a line, and where a line is off by more than 1 % of the
// largest value and there are three sizes or more, by a parabola. The polynomials are those that are orthogonal over the measured
// sizes (Forsythe, "Generation and use of orthogonal polynomials for data-fitting with a digital computer", 1957), so that a value
// at some size is a weighted sum of the measured ones.
//
// Pure; const functions are safe to call from any thread.
#ifndef TIDETAPE_PLANNER_QUESTIONS_SIZE_FIT_H_
#define TIDETAPE_PLANNER_QUESTIONS_SIZE_FIT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/model/problem.h"

namespace tidetape::planner {

struct SizedRun {
  double size = 0;                // > 0
  PlanningProblem problem;        // as measured at the size
  double plain_step_seconds = 0;  // of a step without its replay; 0: unknown
};

class SizeFit {
 public:
  // `runs` have two different sizes or more, one run each; the last one also gives what is no function of size (names, labels).
  // InvalidArgument where they do not, or are not of the same blocks.
  static absl::StatusOr<SizeFit> Create(std::vector<SizedRun> runs);

  // Bytes and seconds as fitted, never below 0; `size` > 0.
  PlanningProblem At(double size) const;
  // 0 where a run does not know it.
  double PlainStepSeconds(double size) const;

  // Of the highest polynomial that some number needed: 1 or 2.
  int degree() const { return degree_; }
  // How far all fitted numbers together are off what was measured, as a share of it. Unset where there are no more sizes than a fit
  // of this degree goes through anyway.
  std::optional<double> bytes_residual() const { return bytes_residual_; }
  std::optional<double> seconds_residual() const { return seconds_residual_; }

 private:
  // One number of the problem, by run.
  struct Series {
    std::vector<double> values;
    int degree = 1;
  };

  explicit SizeFit(std::vector<SizedRun> runs) : runs_(std::move(runs)) {}

  // Values of the polynomials of degree 0, 1 and 2.
  std::vector<double> PolynomialsAt(double size) const;
  // By run, for a fit of this degree.
  std::vector<double> WeightsAt(double size, int degree) const;
  void FitSeries(Series& series);
  std::optional<double> Residual(const std::vector<Series>& all) const;

  std::vector<SizedRun> runs_;
  double mean_ = 0;    // of the sizes
  double slope_ = 0;   // makes the parabola orthogonal to the line
  double offset_ = 0;  // and to the constant
  std::vector<double> norms_;
  std::vector<Series> bytes_;
  std::vector<Series> seconds_;
  Series plain_;
  int degree_ = 1;
  std::optional<double> bytes_residual_;
  std::optional<double> seconds_residual_;
};

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_QUESTIONS_SIZE_FIT_H_
