#include "planner/step/step_planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/model/validate.h"
#include "planner/step/movable.h"
#include "planner/step/moving_bound.h"
#include "planner/step/schedule_choice.h"
#include "planner/step/step_memory.h"
#include "planner/step/step_moves.h"

namespace tidetape::planner {
namespace {

// Vertices of a hull among the choices: so many spread over its bytes, and so many on each side of the bound's point. Few blocks
// need many choices each, so that their bytes add up to just below the limit; many blocks need few.
int32_t SpreadVertices(size_t blocks) {
  return static_cast<int32_t>(std::clamp<size_t>(2048 / std::max<size_t>(blocks, 1), 8, 64));
}
int32_t NearVertices(size_t blocks) { return static_cast<int32_t>(std::clamp<size_t>(256 / std::max<size_t>(blocks, 1), 1, 16)); }

// Ops that the searches for lean plans of one problem visit together: about a fortieth of a second.
constexpr int64_t kLeanVisits = 500'000;

// Ops that may be visited to find out own peaks for one dynamic program: where choices are many, only those that cost the least
// above the bound's prices are looked at.
constexpr int64_t kBestVisits = 500'000;
constexpr int64_t kFewestChoices = 4;

// Seconds that differ by a smaller share are equal.
constexpr double kRounding = 1e-12;

// Ids of choices: options; or vertices of the hull, plans that the refinement found from kFirstFound on, and below kKeepAllChoice
// lean plans.
constexpr int32_t kKeepAllChoice = -1;
constexpr int32_t kFirstFound = 1 << 24;

std::vector<BlockMemory> MemoryOf(const std::vector<BlockPlan>& blocks) {
  std::vector<BlockMemory> memory;
  memory.reserve(blocks.size());
  for (const BlockPlan& block : blocks) memory.push_back(MemoryOf(block));
  return memory;
}

BlockPlan ToBlockPlan(const TapePlan& plan, const BlockTape& tape, const BlockInstance& instance) {
  return {.saved = plan.saved,
          .replayed = plan.replayed,
          .moved = {},
          .saved_bytes = plan.saved_bytes,
          .replay_seconds = plan.replay_seconds,
          .own_peak_bytes = OwnPeakBytes(tape, instance, plan.profile)};
}

BlockPlan ToBlockPlan(const BlockInstance& instance, int32_t option) {
  const BlockOption& chosen = instance.options[option];
  return {.saved = {},
          .replayed = {},
          .moved = {},
          .saved_bytes = chosen.saved_bytes,
          .replay_seconds = chosen.seconds,
          .own_peak_bytes = chosen.own_peak_bytes,
          .option = option};
}

// The bound lies above the plan only by rounding.
void SetBound(StepPlan& plan, double seconds) {
  plan.lower_bound_seconds = std::min(seconds, SecondsOf(plan));
  const double gap = SecondsOf(plan) - plan.lower_bound_seconds;
  plan.gap_ratio = gap <= 0                       ? 0
                   : plan.lower_bound_seconds > 0 ? gap / plan.lower_bound_seconds
                                                  : std::numeric_limits<double>::infinity();
}

// About `count` of the vertices from `first` to `last` at even distances of bytes, both ends among them.
std::vector<int32_t> SpreadOver(const std::vector<Frontier::Vertex>& vertices, int32_t first, int32_t last, int32_t count) {
  std::vector<int32_t> spread;
  const int64_t most = vertices[first].bytes, step = (most - vertices[last].bytes) / (count - 1);
  for (int32_t v = first; v <= last; ++v) {
    const int64_t due = most - step * static_cast<int64_t>(spread.size());
    if (last - first < count || vertices[v].bytes <= due || v == last) spread.push_back(v);
  }
  return spread;
}

// Those within `around` of `center`.
std::vector<int32_t> Around(const std::vector<Frontier::Vertex>& vertices, int32_t center, int32_t around) {
  const int32_t last = static_cast<int32_t>(vertices.size()) - 1;
  std::vector<int32_t> chosen;
  for (int32_t v = std::max(0, center - around); v <= std::min(last, center + around); ++v) chosen.push_back(v);
  return chosen;
}

// The richest vertex with at most so many bytes, or else the leanest.
int32_t VertexAt(const std::vector<Frontier::Vertex>& vertices, int64_t bytes) {
  const auto at = std::partition_point(vertices.begin(), vertices.end() - 1,
                                       [&](const Frontier::Vertex& vertex) { return vertex.bytes > bytes; });
  return static_cast<int32_t>(at - vertices.begin());
}

// Leaves each block at most so many choices: those that cost the least above the bound's prices.
void KeepCheapest(const StepBound& bound, int64_t count, Choices& choices) {
  for (size_t b = 0; b < choices.size(); ++b) {
    std::vector<Choice>& list = choices[b];
    if (static_cast<int64_t>(list.size()) <= count) continue;
    const auto excess = [&](const Choice& choice) { return ExcessSeconds(bound, b, choice.saved_bytes, choice.seconds); };
    std::nth_element(list.begin(), list.begin() + count, list.end(),
                     [&](const Choice& x, const Choice& y) { return excess(x) < excess(y); });
    list.resize(static_cast<size_t>(count));
    std::sort(list.begin(), list.end(), [](const Choice& x, const Choice& y) { return x.saved_bytes < y.saved_bytes; });
  }
}

std::vector<int32_t> IdsOf(const Choices& choices, const std::vector<int32_t>& picks) {
  std::vector<int32_t> ids;
  for (size_t b = 0; b < picks.size(); ++b) ids.push_back(choices[b][picks[b]].id);
  return ids;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepPlanner>> StepPlanner::Create(const PlanningProblem& problem) {
  if (absl::Status status = ValidateProblem(problem); !status.ok()) return status;
  std::unique_ptr<StepPlanner> planner(new StepPlanner(problem));
  planner->tapes_.resize(problem.tapes.size());
  for (const BlockInstance& block : problem.blocks) {
    if (!block.options.empty() || planner->tapes_[block.tape] != nullptr) continue;
    auto plans = TapePlans::Create(problem.tapes[block.tape]);
    if (!plans.ok()) {
      return absl::Status(plans.status().code(), absl::StrCat("tapes[", block.tape, "], ", plans.status().message()));
    }
    planner->tapes_[block.tape] = *std::move(plans);
  }
  planner->option_hulls_.resize(problem.blocks.size());
  for (size_t b = 0; b < problem.blocks.size(); ++b) planner->PrepareBlock(b);

  planner->LowerTheLeastPeak();
  planner->least_peak_ = planner->least_kept_peak_;
  if (MayMove(problem)) planner->FindLeastWithMoves();
  for (const std::vector<HullPoint>* hull : planner->hulls_) planner->full_seconds_ += hull->back().seconds;
  return planner;
}

void StepPlanner::PrepareBlock(size_t b) {
  const BlockInstance& block = problem_.blocks[b];
  if (has_tape(b)) {
    hulls_.push_back(&plans(b).bound());
    own_peaks_.push_back(plans(b).RangeOfOwnPeaks(block));
    least_.push_back({plans(b).bound().back().bytes, own_peaks_[b].least_bytes});
    choices_.push_back(SpreadChoices(b));
    return;
  }
  std::vector<HullPoint> points;
  std::vector<Choice> choices;
  BlockLeast least{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::max()};
  for (size_t o = 0; o < block.options.size(); ++o) {
    const BlockOption& option = block.options[o];
    points.push_back({option.saved_bytes, option.seconds});
    choices.push_back({option.saved_bytes, option.own_peak_bytes, option.seconds, static_cast<int32_t>(o)});
    least.saved_bytes = std::min(least.saved_bytes, option.saved_bytes);
    least.own_peak_bytes = std::min(least.own_peak_bytes, option.own_peak_bytes);
  }
  option_hulls_[b] = LowerHull(std::move(points));
  hulls_.push_back(&option_hulls_[b]);
  own_peaks_.emplace_back();
  least_.push_back(least);
  KeepParetoChoices(choices);
  choices_.push_back(std::move(choices));
}

Choice StepPlanner::VertexChoice(size_t b, int32_t vertex) {
  TapePlans& tape = *tapes_[problem_.blocks[b].tape];
  // Where the cut is not exact, the plan may cost less than it says.
  if (!tape.exact()) return KnownChoice(b, tape.AtVertex(vertex), vertex);
  const Frontier::Vertex& at = tape.vertices()[vertex];
  const OwnPeakRange& range = own_peaks_[b];
  return {at.bytes, range.most_bytes, at.seconds, vertex,
          range.most_bytes - std::max(range.least_bytes, at.bytes + range.standing_bytes)};
}

Choice StepPlanner::KnownChoice(size_t b, const TapePlan& plan, int32_t id) const {
  const BlockInstance& block = problem_.blocks[b];
  return {plan.saved_bytes, OwnPeakBytes(problem_.tapes[block.tape], block, plan.profile), plan.replay_seconds, id};
}

void StepPlanner::FindOwnPeak(size_t b, Choice& choice) {
  if (choice.doubt_bytes == 0) return;
  const BlockInstance& block = problem_.blocks[b];
  choice.own_peak_bytes = OwnPeakBytes(problem_.tapes[block.tape], block, tapes_[block.tape]->AtVertex(choice.id).profile);
  choice.doubt_bytes = 0;
}

// Adds those of the vertices that are not among the choices.
void StepPlanner::AddVertices(size_t b, const std::vector<int32_t>& vertices, std::vector<Choice>& choices) {
  const size_t known = choices.size();
  for (int32_t vertex : vertices) {
    const bool there =
        std::any_of(choices.begin(), choices.begin() + known, [&](const Choice& choice) { return choice.id == vertex; });
    if (!there) choices.push_back(VertexChoice(b, vertex));
  }
  if (choices.size() == known) return;
  std::stable_sort(choices.begin(), choices.end(), [](const Choice& x, const Choice& y) { return x.saved_bytes < y.saved_bytes; });
}

// Vertices spread over the hull, and "keep all".
std::vector<Choice> StepPlanner::SpreadChoices(size_t b) {
  TapePlans& tape = *tapes_[problem_.blocks[b].tape];
  const int32_t last = static_cast<int32_t>(tape.vertices().size()) - 1;
  std::vector<Choice> choices{KnownChoice(b, tape.KeepAll(), kKeepAllChoice)};
  AddVertices(b, SpreadOver(tape.vertices(), 0, last, SpreadVertices(problem_.blocks.size())), choices);
  KeepParetoChoices(choices);
  return choices;
}

// Lean plans are searched only where they may lower the least peak: for the block that holds it, or else for the one that saves the
// most bytes there beyond its fewest, which its own peak forces it to.
void StepPlanner::LowerTheLeastPeak() {
  int64_t visits = kLeanVisits;
  std::vector<bool> searched(problem_.blocks.size(), false);
  const auto may_help = [&](int32_t b) { return b >= 0 && has_tape(b) && !searched[b]; };
  while (true) {
    const LeastStep least =
        has_schedule() ? FindLeastInSchedule(problem_, choices_, learn_) : FindLeastStep(problem_, choices_, learn_);
    least_kept_peak_ = least.peak;
    int32_t chosen = least.peak.holder.phase == Phase::kBackward ? least.peak.holder.block : -1;
    if (!may_help(chosen)) {
      int64_t most = 0;
      for (size_t b = 0; b < choices_.size(); ++b) {
        // Choices come by rising bytes.
        const int64_t forced = choices_[b][least.picks[b]].saved_bytes - choices_[b].front().saved_bytes;
        if (forced <= most || !may_help(static_cast<int32_t>(b))) continue;
        most = forced;
        chosen = static_cast<int32_t>(b);
      }
    }
    if (!may_help(chosen) || visits <= 0) return;
    searched[chosen] = true;
    AddLeanVertices(chosen);
    AddLeanChoices(chosen, visits);
  }
}

// The neighbours of the vertex with the least own peak.
void StepPlanner::AddLeanVertices(size_t b) {
  const Choice* leanest = nullptr;
  for (Choice& choice : choices_[b]) {
    FindOwnPeak(b, choice);
    const bool is_vertex = choice.id > kKeepAllChoice;
    if (is_vertex && (leanest == nullptr || choice.own_peak_bytes < leanest->own_peak_bytes)) leanest = &choice;
  }
  if (leanest == nullptr) return;
  AddVertices(b, Around(plans(b).vertices(), leanest->id, NearVertices(choices_.size())), choices_[b]);
  KeepParetoChoices(choices_[b]);
}

// Searches for one block, and offers what is found to all blocks with its tape.
void StepPlanner::AddLeanChoices(size_t searched, int64_t& visits) {
  const int32_t tape = problem_.blocks[searched].tape;
  const size_t known = tapes_[tape]->lean_plans().size();
  tapes_[tape]->SearchLeanPlans(problem_.blocks[searched], visits);
  const std::vector<TapePlan>& plans = tapes_[tape]->lean_plans();
  for (size_t b = 0; b < choices_.size(); ++b) {
    if (!has_tape(b) || problem_.blocks[b].tape != tape) continue;
    for (size_t i = known; i < plans.size(); ++i) {
      choices_[b].push_back(KnownChoice(b, plans[i], kKeepAllChoice - 1 - static_cast<int32_t>(i)));
    }
    KeepParetoChoices(choices_[b]);
  }
}

// The spread choices, and for blocks with tapes the vertices around the bound's point.
Choices StepPlanner::ChoicesNear(const StepBound& bound) {
  Choices choices = choices_;
  const int32_t near = NearVertices(choices.size());
  for (size_t b = 0; b < choices.size(); ++b) {
    if (!has_tape(b)) continue;
    const std::vector<Frontier::Vertex>& vertices = plans(b).vertices();
    AddVertices(b, Around(vertices, VertexAt(vertices, bound.saved_bytes[b]), near), choices[b]);
  }
  return choices;
}

// Adds the vertices that cost at most so much above the bound's prices, or some of them where they are many: no other one is part
// of a plan that exceeds the bound by less.
void StepPlanner::AddWithin(const StepBound& bound, double seconds, Choices& choices) {
  for (size_t b = 0; b < choices.size(); ++b) {
    if (!has_tape(b)) continue;
    const std::vector<Frontier::Vertex>& vertices = plans(b).vertices();
    const auto within = [&](int32_t v) { return ExcessSeconds(bound, b, vertices[v].bytes, vertices[v].seconds) <= seconds; };
    // The hull is convex, so they are neighbours.
    const int32_t at = VertexAt(vertices, bound.saved_bytes[b]), last = static_cast<int32_t>(vertices.size()) - 1;
    int32_t first = at, end = at;
    while (first > 0 && within(first - 1)) --first;
    while (end < last && within(end + 1)) ++end;
    AddVertices(b, SpreadOver(vertices, first, end, SpreadVertices(choices.size())), choices[b]);
  }
}

// Ops that are visited to find out the own peak of one choice of each tape.
int64_t StepPlanner::VisitsAChoice() const {
  int64_t visits = 1;
  for (size_t t = 0; t < tapes_.size(); ++t)
    visits += tapes_[t] == nullptr ? 0 : static_cast<int64_t>(problem_.tapes[t].ops.size());
  return visits;
}

// Over the corners of the hulls, as in FastestUnder.
std::vector<std::vector<BlockPlan>> StepPlanner::WaysOf(const Choices& choices) {
  std::vector<std::vector<BlockPlan>> ways(choices.size());
  for (size_t b = 0; b < choices.size(); ++b) {
    for (const Choice& choice : choices[b]) ways[b].push_back(MakeBlockPlan(b, choice.id));
  }
  return ways;
}

void StepPlanner::FindLeastWithMoves() {
  least_moving_ = LeanestWithMoves(problem_, WaysOf(choices_));
  if (least_moving_.empty()) return;
  const StepPeak moving = FindStepPeak(problem_, MemoryOf(least_moving_));
  if (moving.bytes < least_peak_.bytes) least_peak_ = moving;
}

// Replaces the plan, made without moves, by a better one with moves where there is one, and its bound by one that holds with moves.
void StepPlanner::Move(StepPlan& plan, int64_t limit) {
  const int64_t reachable = std::max(std::min(limit, kMostBytes), least_peak_.bytes);
  const std::optional<MovingBound> bound = BoundMovingStep(problem_, hulls_, least_, reachable);
  const auto offer = [&](std::vector<BlockPlan> blocks) {
    if (blocks.empty()) return;
    StepPlan moving = MakeStepPlan(std::move(blocks), limit);
    if (moving.step_peak_bytes > reachable) return;
    if (plan.step_peak_bytes > reachable || SecondsOf(moving) < SecondsOf(plan)) plan = std::move(moving);
  };
  offer(least_moving_);
  if (bound.has_value()) {
    offer(FastestWithMoves(problem_, WaysOf(ChoicesNear({.saved_bytes = bound->kept_bytes})), reachable));
  }
  SetHullBound(plan, limit);
}

std::optional<StepBound> StepPlanner::Bound(int64_t limit) const {
  if (has_schedule()) return BoundSchedule(problem_, hulls_, least_, std::min(limit, kMostBytes));
  const auto prefix_limits = PrefixLimits(problem_, least_, std::min(limit, kMostBytes));
  if (!prefix_limits.has_value()) return std::nullopt;
  return BoundStep(hulls_, *prefix_limits);
}

BlockPlan StepPlanner::MakeBlockPlan(size_t b, int32_t choice_id) {
  const BlockInstance& block = problem_.blocks[b];
  if (!has_tape(b)) return ToBlockPlan(block, choice_id);
  TapePlans& tape = *tapes_[block.tape];
  const TapePlan& plan = choice_id == kKeepAllChoice  ? tape.KeepAll()
                         : choice_id < kKeepAllChoice ? tape.lean_plans()[kKeepAllChoice - 1 - choice_id]
                         : choice_id >= kFirstFound   ? refinement_->found(block.tape, choice_id - kFirstFound)
                                                      : tape.AtVertex(choice_id);
  return ToBlockPlan(plan, problem_.tapes[block.tape], block);
}

StepPlan StepPlanner::MakeStepPlan(std::vector<BlockPlan> blocks, int64_t limit) const {
  StepPlan plan;
  const StepPeak peak = FindStepPeak(problem_, MemoryOf(blocks));
  for (const BlockPlan& block : blocks) {
    plan.saved_bytes += block.saved_bytes;
    plan.moved_bytes += block.moved_bytes;
    plan.replay_seconds += block.replay_seconds;
    plan.move_seconds += block.move_seconds;
  }
  plan.blocks = std::move(blocks);
  plan.step_peak_bytes = peak.bytes;
  plan.peak_holder = peak.holder;
  plan.feasible = peak.bytes <= (limit == 0 ? least_peak_.bytes : limit);
  plan.least_peak_bytes = least_peak_.bytes;
  plan.least_peak_holder = least_peak_.holder;
  return plan;
}

void StepPlanner::SetHullBound(StepPlan& plan, int64_t limit) const {
  // A limit that the plan does not keep bounds nothing that could be compared with it: then its own peak is the limit.
  const int64_t kept = std::max(limit, plan.step_peak_bytes);
  // The plan keeps that limit, so a bound exists.
  if (MayMove(problem_)) {
    SetBound(plan, BoundMovingStep(problem_, hulls_, least_, std::min(kept, kMostBytes))->seconds);
  } else {
    SetBound(plan, Bound(kept)->seconds);
  }
}

StepPlan StepPlanner::KeepAll() {
  std::vector<int32_t> ids;
  for (size_t b = 0; b < problem_.blocks.size(); ++b) {
    int32_t id = kKeepAllChoice;
    if (!has_tape(b)) {
      const std::vector<BlockOption>& options = problem_.blocks[b].options;
      id = std::min_element(options.begin(), options.end(),
                            [](const BlockOption& a, const BlockOption& b) { return a.seconds < b.seconds; }) -
           options.begin();
    }
    ids.push_back(id);
  }
  StepPlan plan = PlanOfChoices(ids, kUnlimitedBytes);
  SetHullBound(plan, kUnlimitedBytes);
  return plan;
}

StepPlan StepPlanner::PlanOfChoices(const std::vector<int32_t>& ids, int64_t limit) {
  std::vector<BlockPlan> blocks;
  for (size_t b = 0; b < ids.size(); ++b) blocks.push_back(MakeBlockPlan(b, ids[b]));
  return MakeStepPlan(std::move(blocks), limit);
}

// The limit is at least the least peak.
StepPlan StepPlanner::FastestInSchedule(int64_t limit) {
  const StepBound bound = *Bound(limit);
  Choices choices = ChoicesNear(bound);
  auto picks = PickInSchedule(problem_, choices, std::min(limit, kMostBytes), bound, learn_);
  if (!picks.has_value()) {
    choices = choices_;
    picks = FindLeastInSchedule(problem_, choices, learn_).picks;
  }
  StepPlan plan = PlanOfChoices(IdsOf(choices, *picks), limit);
  SetBound(plan, bound.seconds);
  return plan;
}

// Likewise.
StepPlan StepPlanner::FastestUnder(int64_t limit) {
  if (has_schedule()) return FastestInSchedule(limit);
  const StepBound bound = *Bound(limit);
  const int64_t bytes = std::min(limit, kMostBytes);
  Choices choices = ChoicesNear(bound);
  std::vector<int32_t> picks = *QuickPicks(problem_, choices, bytes, bound, learn_);
  const double seconds = SecondsOf(choices, picks), gap = seconds - bound.seconds;
  std::vector<int32_t> ids = IdsOf(choices, picks);
  if (gap > kRounding * seconds) {
    AddWithin(bound, gap, choices);
    KeepCheapest(bound, std::max(kFewestChoices, kBestVisits / VisitsAChoice()), choices);
    const auto best = BestPicks(problem_, choices, bytes, bound, seconds, learn_);
    if (best.has_value()) ids = IdsOf(choices, *best);
  }
  StepPlan plan = PlanOfChoices(ids, limit);
  SetBound(plan, bound.seconds);
  return plan;
}

// Looks for plans between the corners of the hulls, and tightens the bound.
void StepPlanner::Refine(StepPlan& plan, int64_t limit, const Effort& effort) {
  for (size_t b = 0; b < choices_.size(); ++b) {
    for (Choice& choice : choices_[b]) FindOwnPeak(b, choice);
  }
  if (refinement_ == nullptr) refinement_ = std::make_unique<StepRefinement>(problem_, tapes_);
  const StepRefinement::Result result = refinement_->Refine(choices_, kFirstFound, limit, *Bound(limit), plan.replay_seconds,
                                                            effort.gap_of_full_replay * full_seconds_, effort);
  const double bound_seconds = std::max(plan.lower_bound_seconds, result.bound_seconds);
  if (!result.picks.empty()) plan = PlanOfChoices(result.picks, limit);
  SetBound(plan, bound_seconds);
}

StepPlan StepPlanner::Plan(int64_t limit) { return PlanClosely(limit, {}); }

StepPlan StepPlanner::PlanClosely(int64_t limit, const Effort& effort) {
  StepPlan plan = limit == kUnlimitedBytes ? KeepAll() : FastestUnder(std::max(limit, least_kept_peak_.bytes));
  const bool close = plan.replay_seconds - plan.lower_bound_seconds <= effort.gap_of_full_replay * full_seconds_;
  const bool may_refine = !has_schedule() && limit >= least_kept_peak_.bytes;
  if (effort.visits > 0 && !close && may_refine) Refine(plan, std::min(limit, kMostBytes), effort);
  if (MayMove(problem_) && limit != kUnlimitedBytes) Move(plan, limit);
  plan.feasible = limit == 0 || plan.step_peak_bytes <= limit;
  return plan;
}

absl::StatusOr<BlockPlan> StepPlanner::EvaluateBlock(size_t b, std::vector<int32_t> saved,
                                                     const std::vector<int32_t>& moved) const {
  const BlockInstance& block = problem_.blocks[b];
  if (!has_tape(b)) {
    if (saved.size() != 1 || saved[0] < 0 || static_cast<size_t>(saved[0]) >= block.options.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("has ", block.options.size(), " options, so the list must hold the index of one"));
    }
    if (!moved.empty()) return absl::InvalidArgumentError("has options, so nothing of it can be moved");
    return ToBlockPlan(block, saved[0]);
  }
  const BlockTape& tape = problem_.tapes[block.tape];
  // As far as replay goes a moved value is a saved one.
  for (int32_t s : moved) {
    if (s >= 0 && static_cast<size_t>(s) < tape.storages.size() && plans(b).index().intermediate(s)) saved.push_back(s);
  }
  std::sort(saved.begin(), saved.end());
  const absl::StatusOr<TapePlan> plan = EvaluateTapePlan(plans(b).index(), saved);
  if (!plan.ok()) return plan.status();
  BlockPlan kept = ToBlockPlan(*plan, tape, block);
  if (moved.empty()) return kept;
  const absl::StatusOr<MovedSet> set = MakeMovedSet(tape, block, kept.saved, moved);
  if (!set.ok()) return set.status();
  return MoveSet(std::move(kept), *set, problem_.host_bytes_per_second);
}

absl::StatusOr<StepPlan> StepPlanner::Evaluate(const std::vector<std::vector<int32_t>>& saved,
                                               const std::vector<std::vector<int32_t>>& moved, int64_t limit) {
  for (const auto& [lists, what] : {std::pair(&saved, ""), std::pair(&moved, "moved ")}) {
    if (lists->size() == problem_.blocks.size() || (lists == &moved && moved.empty())) continue;
    return absl::InvalidArgumentError(absl::StrCat("the plan has ", what, "lists for ", lists->size(),
                                                   " blocks, but the problem has ", problem_.blocks.size(), " blocks"));
  }
  const bool moves = std::any_of(moved.begin(), moved.end(), [](const auto& list) { return !list.empty(); });
  if (moves && !MayMove(problem_))
    return absl::InvalidArgumentError("the plan moves values, but the problem gives the host no room");
  std::vector<BlockPlan> blocks;
  for (size_t b = 0; b < saved.size(); ++b) {
    absl::StatusOr<BlockPlan> plan = EvaluateBlock(b, saved[b], moves ? moved[b] : std::vector<int32_t>());
    if (!plan.ok()) {
      return absl::Status(plan.status().code(),
                          absl::StrCat("blocks[", b, "] '", problem_.blocks[b].name, "': ", plan.status().message()));
    }
    blocks.push_back(*std::move(plan));
  }
  StepPlan plan = MakeStepPlan(std::move(blocks), limit);
  if (plan.moved_bytes > problem_.host_bytes_limit) plan.feasible = false;
  SetHullBound(plan, limit);
  return plan;
}

}  // namespace tidetape::planner
