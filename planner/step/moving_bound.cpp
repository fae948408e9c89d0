#include "planner/step/moving_bound.h"

#include <algorithm>
#include <map>
#include <utility>

#include "planner/step/movable.h"

namespace tidetape::planner {
namespace {

// Halvings of the price's range; each is a relaxation of the step.
constexpr int kPriceSteps = 24;

// The relaxation at one price.
struct Priced {
  double seconds = 0;
  int64_t host_bytes = 0;
  std::vector<int64_t> kept_bytes;
};

class Pricing {
 public:
  Pricing(const PlanningProblem& problem, const std::vector<const std::vector<HullPoint>*>& hulls, std::vector<int64_t> limits)
      : problem_(problem), hulls_(hulls), limits_(std::move(limits)) {}

  Priced At(double price) const {
    // Blocks share the hulls of their tapes, and may hold different inputs.
    std::map<std::pair<const std::vector<HullPoint>*, int64_t>, std::vector<HullPoint>> moving;
    std::vector<const std::vector<HullPoint>*> used;
    for (size_t b = 0; b < hulls_.size(); ++b) {
      if (!problem_.blocks[b].options.empty()) {
        used.push_back(hulls_[b]);
        continue;
      }
      const int64_t input_bytes = HeldInputBytes(problem_.tapes[problem_.blocks[b].tape], problem_.blocks[b]);
      std::vector<HullPoint>& hull = moving[{hulls_[b], input_bytes}];
      if (hull.empty()) hull = HullWithMoves(*hulls_[b], MoveSecondsAByte(problem_) + price, input_bytes);
      used.push_back(&hull);
    }
    const StepBound bound = BoundStep(used, limits_);
    Priced priced{.seconds = bound.seconds - price * static_cast<double>(problem_.host_bytes_limit)};
    for (size_t b = 0; b < used.size(); ++b) {
      // The last point of the hull itself.
      const size_t corners = used[b]->size() - (used[b]->back().vertex == kMovesAll ? 1 : 0);
      const int64_t kept = std::max(bound.saved_bytes[b], (*used[b])[corners - 1].bytes);
      priced.kept_bytes.push_back(kept);
      priced.host_bytes += kept - bound.saved_bytes[b];
    }
    return priced;
  }

 private:
  const PlanningProblem& problem_;
  const std::vector<const std::vector<HullPoint>*>& hulls_;
  const std::vector<int64_t> limits_;
};

double SteepestSlope(const std::vector<const std::vector<HullPoint>*>& hulls) {
  double steepest = 0;
  for (const std::vector<HullPoint>* hull : hulls) {
    if (hull->size() < 2) continue;
    const HullPoint &from = (*hull)[hull->size() - 2], &to = hull->back();
    steepest = std::max(steepest, (to.seconds - from.seconds) / static_cast<double>(from.bytes - to.bytes));
  }
  return steepest;
}

}  // namespace

std::vector<HullPoint> HullWithMoves(const std::vector<HullPoint>& hull, double seconds_a_byte, int64_t input_bytes) {
  std::vector<HullPoint> moving{hull.front()};
  for (size_t i = 1; i < hull.size(); ++i) {
    const HullPoint &from = hull[i - 1], &to = hull[i];
    if (to.seconds - from.seconds > seconds_a_byte * static_cast<double>(from.bytes - to.bytes)) break;
    moving.push_back(to);
  }
  const HullPoint last = moving.back();
  const int64_t bytes = last.bytes + input_bytes;
  if (bytes > 0) moving.push_back({-input_bytes, last.seconds + seconds_a_byte * static_cast<double>(bytes), kMovesAll});
  return moving;
}

std::optional<MovingBound> BoundMovingStep(const PlanningProblem& problem, const std::vector<const std::vector<HullPoint>*>& hulls,
                                           const std::vector<BlockLeast>& least, int64_t limit) {
  std::vector<BlockLeast> moving = least;
  for (size_t b = 0; b < moving.size(); ++b) {
    const BlockInstance& block = problem.blocks[b];
    if (block.options.empty()) moving[b].saved_bytes = -HeldInputBytes(problem.tapes[block.tape], block);
  }
  std::optional<std::vector<int64_t>> limits = PrefixLimits(problem, moving, limit);
  if (!limits.has_value()) return std::nullopt;
  const Pricing pricing(problem, hulls, *std::move(limits));

  Priced best = pricing.At(0);
  const int steps = best.host_bytes > problem.host_bytes_limit ? kPriceSteps : 0;
  double low = 0, high = std::max(2 * SteepestSlope(hulls), MoveSecondsAByte(problem));
  for (int i = 0; i < steps; ++i) {
    const double price = low + (high - low) / 2;
    Priced priced = pricing.At(price);
    (priced.host_bytes > problem.host_bytes_limit ? low : high) = price;
    if (priced.seconds >= best.seconds) best = std::move(priced);
  }
  return MovingBound{best.seconds, std::move(best.kept_bytes)};
}

}  // namespace tidetape::planner
