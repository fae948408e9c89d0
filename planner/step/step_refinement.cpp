#include "planner/step/step_refinement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "planner/step/region_pieces.h"
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
// Pieces are a share of the gap long; where nothing is left to split, a smaller one.
constexpr double kShareOfGap = 1.0 / 3;
constexpr double kFinerBy = 4;
// So many regions of a block are split in a round.
constexpr int kMostSplits = 16;
// To make a piece and to find out which others beat it takes as long as so many visits of an op.
constexpr int64_t kVisitsAPiece = 3;
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

StepRefinement::Search StepRefinement::MakeSearch(int64_t limit, const StepBound& bound) const {
  Search search{.bound = bound, .most_own_peak = {}, .hopeless = {}, .offered = {}};
  const size_t blocks = problem_.blocks.size();
  search.hopeless.resize(blocks);
  search.offered.resize(blocks, 0);
  int64_t least_before = 0;
  for (size_t b = 0; b < blocks; ++b) {
    search.most_own_peak.push_back(limit - problem_.blocks[b].backward_base_bytes - least_before);
    if (has_tape(b)) least_before += spaces_[problem_.blocks[b].tape]->plans(0).bound().back().bytes;
  }
  return search;
}

void StepRefinement::AddFound(Search& search, int32_t first_id, Choices& choices) const {
  for (size_t b = 0; b < choices.size(); ++b) {
    if (!has_tape(b)) continue;
    const BlockInstance& block = problem_.blocks[b];
    const auto& found = found_[block.tape];
    for (size_t& next = search.offered[b]; next < found.size(); ++next) {
      const TapePlan& plan = *found[next];
      choices[b].push_back({plan.saved_bytes, OwnPeakBytes(problem_.tapes[block.tape], block, plan.profile), plan.replay_seconds,
                            first_id + static_cast<int32_t>(next)});
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
// seconds of one of these. Their ids are those of their regions; -1 for the options of a block without a tape.
std::vector<Choice> StepRefinement::Pieces(size_t b, Search& search, double most_excess, double grain_seconds) {
  const BlockInstance& block = problem_.blocks[b];
  const PieceNeeds needs{.excess = [&](int64_t bytes, double seconds) { return ExcessSeconds(search.bound, b, bytes, seconds); },
                         .most_excess = most_excess,
                         .most_own_peak = search.most_own_peak[b],
                         .grain_seconds = grain_seconds};
  std::vector<Choice> pieces;
  const auto append = [&](int64_t bytes, int64_t own_peak, double seconds, int32_t id) {
    if (own_peak > needs.most_own_peak || needs.excess(bytes, seconds) > most_excess) return;
    pieces.push_back({.saved_bytes = bytes, .own_peak_bytes = own_peak, .seconds = seconds, .id = id});
  };
  if (!has_tape(b)) {
    for (const BlockOption& option : block.options) append(option.saved_bytes, option.own_peak_bytes, option.seconds, -1);
    return pieces;
  }
  PlanSpace& space = *spaces_[block.tape];
  Flags& hopeless = search.hopeless[b];
  for (int32_t region : space.open()) {
    hopeless.resize(std::max(hopeless.size(), static_cast<size_t>(region) + 1), false);
    if (hopeless[region]) continue;
    const size_t before = pieces.size();
    TapePlans& plans = space.plans(region);
    if (space.Decided(region)) {
      const TapePlan& plan = plans.AtVertex(0);
      append(plan.saved_bytes, OwnPeakBytes(problem_.tapes[block.tape], block, plan.profile), plan.replay_seconds, region);
    } else {
      const OwnPeakRange& range = RangeOf(b, region);
      AppendPieces({plans.bound(), range, plans.AtEvent(range.least_event).bound()}, needs, region, pieces);
    }
    hopeless[region] = pieces.size() == before;
  }
  return pieces;
}

// Splits the piece's region on what the relaxation leaves open there.
bool StepRefinement::Split(size_t b, const Choice& piece) {
  const BlockInstance& block = problem_.blocks[b];
  const BlockTape& tape = problem_.tapes[block.tape];
  PlanSpace& space = *spaces_[block.tape];
  TapePlans& plans = space.plans(piece.id);
  // Where the seconds are those of a mixture at the peak.
  const OwnPeakRange& range = RangeOf(b, piece.id);
  const bool at_peak = piece.seconds > BoundSeconds(plans.bound(), piece.saved_bytes) * (1 + kRounding);
  if (at_peak && space.SplitBetweenCorners(piece.id, range.least_event, piece.own_peak_bytes - range.least_bytes)) return true;
  // Where the corner's own peak is higher, the decisions that would show it have not been made.
  const std::vector<Frontier::Vertex>& vertices = plans.vertices();
  const auto at = std::partition_point(vertices.begin(), vertices.end() - 1,
                                       [&](const Frontier::Vertex& vertex) { return vertex.bytes > piece.saved_bytes; });
  const TapePlan& corner = plans.AtVertex(static_cast<int32_t>(at - vertices.begin()));
  const bool hides_a_peak = OwnPeakBytes(tape, block, corner.profile) > piece.own_peak_bytes;
  if (hides_a_peak && space.SplitOnHeld(piece.id, OwnPeakEvent(tape, block, corner.profile), corner)) return true;
  return space.SplitBetweenCorners(piece.id, piece.saved_bytes) || space.SplitOnLargest(piece.id);
}

// Splits the regions with pieces of less than so many seconds that need no more memory than the promise, the fastest first: the
// relaxation goes on to promise the same as long as there is one. True where one was split.
bool StepRefinement::SplitRivals(size_t b, const std::vector<Choice>& pieces, const Choice& promise, double seconds,
                                 std::set<std::pair<int32_t, int32_t>>& met, int64_t& visits) {
  std::vector<const Choice*> rivals;
  for (const Choice& piece : pieces) {
    if (piece.saved_bytes <= promise.saved_bytes && piece.own_peak_bytes <= promise.own_peak_bytes && piece.seconds < seconds)
      rivals.push_back(&piece);
  }
  std::sort(rivals.begin(), rivals.end(), [](const Choice* x, const Choice* y) { return x->seconds < y->seconds; });
  const int32_t tape = problem_.blocks[b].tape;
  PlanSpace& space = *spaces_[tape];
  int splits = 0;
  for (const Choice* rival : rivals) {
    if (splits == kMostSplits || visits <= 0) break;
    if (!met.emplace(tape, rival->id).second) continue;
    const size_t before = space.open().size();
    if (!Split(b, *rival)) continue;
    ++splits;
    for (size_t i = before - 1; i < space.open().size(); ++i) {
      visits -= VisitsARegion(problem_.tapes[tape]);
      AddCorners(tape, space.open()[i], rival->saved_bytes);
    }
  }
  return splits > 0;
}

StepRefinement::Result StepRefinement::Refine(Choices choices, int32_t first_id, int64_t limit, const StepBound& bound,
                                              double plan_seconds, double gap_seconds, const Effort& effort) {
  Result result{.picks = {}, .bound_seconds = bound.seconds};
  const size_t blocks = choices.size();
  const double finest = gap_seconds / 3 / static_cast<double>(blocks);
  Search search = MakeSearch(limit, bound);
  double share_of_gap = kShareOfGap;
  std::vector<std::vector<Choice>> pieces(blocks);
  for (int64_t visits = effort.visits; visits > 0 && !effort.Stopped();) {
    AddFound(search, first_id, choices);
    const TimedPicks faster =
        PickByTime(problem_, choices, limit, bound, plan_seconds, Units(choices, plan_seconds, finest, effort));
    if (!faster.picks.empty() && SecondsOf(choices, faster.picks) < plan_seconds) {
      plan_seconds = SecondsOf(choices, faster.picks);
      result.picks.clear();
      for (size_t b = 0; b < blocks; ++b) result.picks.push_back(choices[b][faster.picks[b]].id);
    }
    const double most_excess = plan_seconds - bound.seconds + kRounding * plan_seconds;
    const double gap = plan_seconds - result.bound_seconds;
    const double grain = std::max(finest, gap * share_of_gap / static_cast<double>(blocks));
    for (size_t b = 0; b < blocks; ++b) {
      pieces[b] = Pieces(b, search, most_excess, grain);
      visits -= kVisitsAPiece * static_cast<int64_t>(pieces[b].size());
    }
    Choices relaxation = pieces;
    for (std::vector<Choice>& list : relaxation) KeepParetoChoices(list);
    const TimedPicks relaxed =
        PickByTime(problem_, relaxation, limit, bound, plan_seconds, Units(relaxation, plan_seconds, grain, effort));
    result.bound_seconds = std::max(result.bound_seconds, relaxed.bound_seconds);
    if (relaxed.picks.empty() || plan_seconds - result.bound_seconds <= gap_seconds) break;
    visits -= 1 + (faster.pairs + relaxed.pairs) / kPairsAVisit;
    std::set<std::pair<int32_t, int32_t>> met;
    bool split = false;
    for (size_t b = 0; b < blocks && visits > 0; ++b) {
      if (!has_tape(b)) continue;
      const Choice& promise = relaxation[b][relaxed.picks[b]];
      double known = std::numeric_limits<double>::infinity();
      for (const Choice& choice : choices[b]) {
        if (choice.saved_bytes <= promise.saved_bytes && choice.own_peak_bytes <= promise.own_peak_bytes)
          known = std::min(known, choice.seconds);
      }
      if (known > promise.seconds + grain) split |= SplitRivals(b, pieces[b], promise, known - grain, met, visits);
    }
    if (split) continue;
    if (grain <= finest) break;
    share_of_gap /= kFinerBy;
  }
  return result;
}

}  // namespace tidetape::planner
