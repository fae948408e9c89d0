#include "planner/step/timed_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tidetape::planner {
namespace {

constexpr int64_t kUnreached = std::numeric_limits<int64_t>::max();
// Seconds that differ by a smaller share of those asked for may be equal.
constexpr double kRounding = 1e-9;

// What the blocks so far come to.
struct Sum {
  int32_t units = 0;
  int64_t saved_bytes = 0;
  double excess_seconds = 0;  // no way to reach these units with more bytes has less
};

// Sums of the blocks up to one and with it, by units, while that block's choices are tried.
class Row {
 public:
  explicit Row(size_t width) : saved_bytes_(width, kUnreached), excess_(width, std::numeric_limits<double>::infinity()) {}

  size_t width() const { return saved_bytes_.size(); }

  // True where no way to so many units with fewer bytes is known.
  bool Offer(size_t units, int64_t saved_bytes, double excess) {
    excess_[units] = std::min(excess_[units], excess);
    if (saved_bytes >= saved_bytes_[units]) return false;
    saved_bytes_[units] = saved_bytes;
    return true;
  }

  // Those that another one does not beat: what takes longer and saves no fewer bytes leads nowhere. The row is empty afterwards.
  void MoveTo(std::vector<Sum>& sums) {
    sums.clear();
    for (size_t u = 0; u < width(); ++u) {
      if (saved_bytes_[u] == kUnreached) continue;
      if (sums.empty() || saved_bytes_[u] < sums.back().saved_bytes) {
        sums.push_back({static_cast<int32_t>(u), saved_bytes_[u], excess_[u]});
      } else {
        sums.back().excess_seconds = std::min(sums.back().excess_seconds, excess_[u]);
      }
      saved_bytes_[u] = kUnreached;
      excess_[u] = std::numeric_limits<double>::infinity();
    }
  }

 private:
  std::vector<int64_t> saved_bytes_;
  std::vector<double> excess_;
};

double ExcessSeconds(const StepBound& bound, size_t b, const Choice& choice) {
  return ExcessSeconds(bound, b, choice.saved_bytes, choice.seconds);
}

// Whole units; what lies below 0 by rounding is none.
double WholeUnits(const Choice& choice, double unit) { return std::max(0.0, std::floor(choice.seconds / unit)); }

// By block: the least excess of the blocks after it.
std::vector<double> LeastExcessAfter(const Choices& choices, const StepBound& bound) {
  std::vector<double> after(choices.size(), 0);
  for (size_t b = choices.size(); b-- > 1;) {
    double least = std::numeric_limits<double>::infinity();
    for (const Choice& choice : choices[b]) least = std::min(least, ExcessSeconds(bound, b, choice));
    after[b - 1] = after[b] + least;
  }
  return after;
}

}  // namespace

TimedPicks PickByTime(const PlanningProblem& problem, const Choices& choices, int64_t limit, const StepBound& bound,
                      double most_seconds, int32_t units) {
  TimedPicks result{.picks = {}, .bound_seconds = most_seconds};
  if (problem.optimizer_peak_bytes > limit) return result;
  const double unit = most_seconds / units;
  const double most_excess = most_seconds * (1 + kRounding) - bound.seconds;
  const std::vector<double> least_after = LeastExcessAfter(choices, bound);
  Row row(static_cast<size_t>(units) + 1);
  std::vector<Sum> sums{Sum()};
  std::vector<int32_t> pick(row.width() * choices.size(), -1);
  for (size_t b = 0; b < choices.size(); ++b) {
    const BlockInstance& block = problem.blocks[b];
    int32_t* const picked = &pick[b * row.width()];
    // So that the sums that a choice is tried with are the first ones.
    std::sort(sums.begin(), sums.end(), [](const Sum& x, const Sum& y) { return x.excess_seconds < y.excess_seconds; });
    for (size_t c = 0; c < choices[b].size(); ++c) {
      const Choice& choice = choices[b][c];
      const double steps = WholeUnits(choice, unit);
      if (steps > units) continue;
      const auto takes = static_cast<int32_t>(steps);
      // The most bytes before the block with which the choice keeps the limit.
      const int64_t room = std::min({limit - block.forward_base_bytes - choice.saved_bytes,
                                     limit - block.backward_base_bytes - choice.own_peak_bytes,
                                     limit - problem.head_peak_bytes - choice.saved_bytes});
      const double excess = ExcessSeconds(bound, b, choice);
      const double most_before = most_excess - least_after[b] - excess;
      for (const Sum& sum : sums) {
        if (sum.excess_seconds > most_before) break;
        ++result.pairs;
        if (sum.saved_bytes > room || sum.units + takes > units) continue;
        const auto at = static_cast<size_t>(sum.units + takes);
        if (row.Offer(at, sum.saved_bytes + choice.saved_bytes, sum.excess_seconds + excess)) picked[at] = static_cast<int32_t>(c);
      }
    }
    row.MoveTo(sums);
  }
  if (sums.empty()) return result;
  auto at = static_cast<size_t>(sums.front().units);
  result.bound_seconds = std::min(most_seconds, static_cast<double>(at) * unit);
  result.picks.resize(choices.size());
  for (size_t b = choices.size(); b-- > 0;) {
    result.picks[b] = pick[b * row.width() + at];
    at -= static_cast<size_t>(WholeUnits(choices[b][result.picks[b]], unit));
  }
  return result;
}

}  // namespace tidetape::planner
