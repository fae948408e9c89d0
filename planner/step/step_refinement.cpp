#include "planner/step/step_refinement.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "planner/step/timed_choice.h"
#include "planner/tape/replay_simulation.h"

namespace tidetape::planner {
namespace {

// The finer the grid of the dynamic program, the better its bound, and the more pairs of a sum and a choice it tries: so many a
// visit of an op, which takes as long, and so many on the whole that about so many rounds can be made. Most of them prove hopeless
// before they are tried.
constexpr int64_t kPairsAVisit = 64;
constexpr double kRounds = 40;
constexpr double kFewestPairs = 3e6;
constexpr double kTriedShare = 0.25;
constexpr int32_t kMostUnits = 1 << 16;
constexpr int kMostPieces = 256;
// Seconds that differ by a smaller share may be equal.
constexpr double kRounding = 1e-9;

int32_t Units(const Choices& choices, double most_seconds, double unit_seconds, const Effort& effort) {
  size_t count = 0;
  for (const std::vector<Choice>& list : choices) count += list.size();
  const double pairs = std::max(kFewestPairs, static_cast<double>(effort.visits) * kPairsAVisit / kRounds / kTriedShare);
  const double affordable = std::clamp(pairs / static_cast<double>(count), 64.0, static_cast<double>(kMostUnits));
  return static_cast<int32_t>(std::clamp(most_seconds / unit_seconds, 16.0, affordable));
}

}  // namespace

StepRefinement::StepRefinement(const PlanningProblem& problem, const std::vector<std::unique_ptr<TapePlans>>& tapes)
    : problem_(problem), spaces_(tapes.size()), own_peaks_(problem.blocks.size()), found_(tapes.size()) {
  for (size_t t = 0; t < tapes.size(); ++t) {
    if (tapes[t] != nullptr) spaces_[t] = std::make_unique<PlanSpace>(problem.tapes[t], *tapes[t]);
  }
}

// The corners of a region's hull around `bytes` are plans.
void StepRefinement::AddCorners(int32_t tape, int32_t region, int64_t bytes) {
  TapePlans& plans = spaces_[tape]->plans(region);
  const std::vector<Frontier::Vertex>& vertices = plans.vertices();
  const auto at = static_cast<int32_t>(
      std::partition_point(vertices.begin(), vertices.end(), [&](const Frontier::Vertex& vertex) { return vertex.bytes > bytes; }) -
      vertices.begin());
  const int32_t last = static_cast<int32_t>(vertices.size()) - 1;
  for (int32_t v = std::max(0, std::min(at, last) - 1); v <= std::min(at + 1, last); ++v) {
    found_[tape].push_back(std::make_unique<TapePlan>(plans.AtVertex(v)));
  }
}

void StepRefinement::AddFound(Choices& choices, int32_t first_id) {
  for (size_t b = 0; b < choices.size(); ++b) {
    if (!has_tape(b)) continue;
    const BlockInstance& block = problem_.blocks[b];
    const auto& found = found_[block.tape];
    for (; offered_[b] < found.size(); ++offered_[b]) {
      const TapePlan& plan = *found[offered_[b]];
      choices[b].push_back({plan.saved_bytes, OwnPeakBytes(problem_.tapes[block.tape], block, plan.profile), plan.replay_seconds,
                            first_id + static_cast<int32_t>(offered_[b])});
    }
    KeepParetoChoices(choices[b]);
  }
}

const OwnPeakRange& StepRefinement::RangeOf(size_t b, int32_t region) {
  std::vector<OwnPeakRange>& known = own_peaks_[b];
  PlanSpace& space = *spaces_[problem_.blocks[b].tape];
  while (known.size() <= static_cast<size_t>(region)) {
    known.push_back(space.plans(static_cast<int32_t>(known.size())).RangeOfOwnPeaks(problem_.blocks[b]));
  }
  return known[region];
}

// Every plan of the block that exceeds the bound's prices by at most so many seconds needs at least the bytes, the own peak and the
// seconds of one of these.
std::vector<Choice> StepRefinement::Relaxation(size_t b, const StepBound& bound, double most_excess, double piece_seconds,
                                               std::vector<Piece>& pieces) {
  const BlockInstance& block = problem_.blocks[b];
  std::vector<Choice> choices;
  pieces.clear();
  const auto excess = [&](int64_t bytes, double seconds) { return ExcessSeconds(bound, b, bytes, seconds); };
  if (!has_tape(b)) {
    for (const BlockOption& option : block.options) {
      if (excess(option.saved_bytes, option.seconds) > most_excess) continue;
      choices.push_back({option.saved_bytes, option.own_peak_bytes, option.seconds, -1});
    }
    KeepParetoChoices(choices);
    return choices;
  }
  PlanSpace& space = *spaces_[block.tape];
  for (int32_t region : space.open()) {
    if (space.Decided(region)) {
      const TapePlan& plan = space.plans(region).AtVertex(0);
      if (excess(plan.saved_bytes, plan.replay_seconds) > most_excess) continue;
      choices.push_back({plan.saved_bytes, OwnPeakBytes(problem_.tapes[block.tape], block, plan.profile), plan.replay_seconds,
                         static_cast<int32_t>(pieces.size())});
      pieces.push_back({region, plan.saved_bytes});
      continue;
    }
    const std::vector<HullPoint>& hull = space.plans(region).bound();
    const OwnPeakRange& range = RangeOf(b, region);
    const auto add = [&](int64_t bytes, double seconds) {
      choices.push_back(
          {bytes, std::max(range.least_bytes, bytes + range.standing_bytes), seconds, static_cast<int32_t>(pieces.size())});
      pieces.push_back({region, bytes});
    };
    if (excess(hull.front().bytes, hull.front().seconds) <= most_excess) add(hull.front().bytes, hull.front().seconds);
    // Between two corners, as far as the excess allows: plans with bytes from x to just below the next x take what the hull asks
    // there.
    for (size_t i = 1; i < hull.size(); ++i) {
      const HullPoint &rich = hull[i - 1], &lean = hull[i];
      const double at_rich = excess(rich.bytes, rich.seconds), at_lean = excess(lean.bytes, lean.seconds);
      if (at_rich > most_excess && at_lean > most_excess) continue;
      const double from = at_lean > most_excess ? (at_lean - most_excess) / (at_lean - at_rich) : 0;  // as shares from lean to rich
      const double to = at_rich > most_excess ? (most_excess - at_lean) / (at_rich - at_lean) : 1;
      const double drop = lean.seconds - rich.seconds, width = static_cast<double>(rich.bytes - lean.bytes);
      const double asked = std::ceil(drop * (to - from) / piece_seconds);
      const int count = static_cast<int>(std::clamp(asked, 1.0, static_cast<double>(kMostPieces)));
      const double step = (to - from) / count;
      for (int k = 0; k < count; ++k) {
        add(lean.bytes + static_cast<int64_t>(width * (from + step * k)), lean.seconds - drop * (from + step * (k + 1)));
      }
    }
  }
  KeepParetoChoices(choices);
  return choices;
}

// Where the hull is right and the own peak is not, the decisions that the corners agree on have not been made.
bool StepRefinement::Split(const Piece& piece, const Choice& promise, size_t b) {
  const BlockInstance& block = problem_.blocks[b];
  PlanSpace& space = *spaces_[block.tape];
  TapePlans& plans = space.plans(piece.region);
  const std::vector<Frontier::Vertex>& vertices = plans.vertices();
  const auto at = std::partition_point(vertices.begin(), vertices.end() - 1,
                                       [&](const Frontier::Vertex& vertex) { return vertex.bytes > piece.bytes; });
  const TapePlan& corner = plans.AtVertex(static_cast<int32_t>(at - vertices.begin()));
  const bool hides_a_peak = OwnPeakBytes(problem_.tapes[block.tape], block, corner.profile) > promise.own_peak_bytes;
  if (hides_a_peak) return space.SplitOnLargest(piece.region) || space.SplitBetweenCorners(piece.region, piece.bytes);
  return space.SplitBetweenCorners(piece.region, piece.bytes) || space.SplitOnLargest(piece.region);
}

StepRefinement::Result StepRefinement::Refine(Choices choices, int32_t first_id, int64_t limit, const StepBound& bound,
                                              double plan_seconds, double gap_seconds, const Effort& effort) {
  Result result{.picks = {}, .bound_seconds = bound.seconds};
  int64_t visits = effort.visits;
  offered_.assign(choices.size(), 0);
  const double a_block = gap_seconds / 3 / static_cast<double>(choices.size());
  Choices relaxation(choices.size());
  std::vector<std::vector<Piece>> pieces(choices.size());
  while (visits > 0 && !effort.Stopped()) {
    AddFound(choices, first_id);
    const TimedPicks faster =
        PickByTime(problem_, choices, limit, bound, plan_seconds, Units(choices, plan_seconds, a_block, effort));
    if (!faster.picks.empty() && SecondsOf(choices, faster.picks) < plan_seconds) {
      plan_seconds = SecondsOf(choices, faster.picks);
      result.picks.clear();
      for (size_t b = 0; b < choices.size(); ++b) result.picks.push_back(choices[b][faster.picks[b]].id);
    }
    const double most_excess = plan_seconds - bound.seconds + kRounding * plan_seconds;
    for (size_t b = 0; b < relaxation.size(); ++b) relaxation[b] = Relaxation(b, bound, most_excess, a_block, pieces[b]);
    const TimedPicks relaxed =
        PickByTime(problem_, relaxation, limit, bound, plan_seconds, Units(relaxation, plan_seconds, a_block, effort));
    result.bound_seconds = std::max(result.bound_seconds, relaxed.bound_seconds);
    if (relaxed.picks.empty() || plan_seconds - result.bound_seconds <= gap_seconds) break;
    visits -= 1 + (faster.pairs + relaxed.pairs) / kPairsAVisit;
    std::set<std::pair<int32_t, int32_t>> met;
    bool split = false;
    for (size_t b = 0; b < relaxation.size() && visits > 0; ++b) {
      if (!has_tape(b)) continue;
      const Choice& promise = relaxation[b][relaxed.picks[b]];
      const bool kept = std::any_of(choices[b].begin(), choices[b].end(), [&](const Choice& choice) {
        return choice.saved_bytes <= promise.saved_bytes && choice.own_peak_bytes <= promise.own_peak_bytes &&
               choice.seconds <= promise.seconds + a_block;
      });
      const int32_t tape = problem_.blocks[b].tape;
      const Piece piece = pieces[b][promise.id];
      if (kept || !met.emplace(tape, piece.region).second) continue;
      PlanSpace& space = *spaces_[tape];
      const size_t before = space.open().size();
      if (!Split(piece, promise, b)) continue;
      split = true;
      for (size_t i = before - 1; i < space.open().size(); ++i) {
        visits -= VisitsARegion(problem_.tapes[tape]);
        AddCorners(tape, space.open()[i], piece.bytes);
      }
    }
    if (!split) break;
  }
  return result;
}

}  // namespace tidetape::planner
