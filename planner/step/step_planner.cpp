#include "planner/step/step_planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/model/validate.h"
#include "planner/step/expected_peak.h"
#include "planner/step/movable.h"
#include "planner/step/moving_bound.h"
#include "planner/step/schedule_choice.h"
#include "planner/step/step_memory.h"
#include "planner/step/step_moves.h"

namespace tidetape::planner {
namespace {

// Ops that the searches for lean plans of one problem visit together: about a fortieth of a second.
constexpr int64_t kLeanVisits = 500'000;

// Ops that may be visited to find out own peaks for one dynamic program: where choices are many, only those that cost the least
// above the bound's prices are looked at.
constexpr int64_t kBestVisits = 500'000;
constexpr int64_t kFewestChoices = 4;

// Seconds that differ by a smaller share are equal.
constexpr double kRounding = 1e-12;

std::vector<BlockMemory> MemoryOf(const std::vector<BlockPlan>& blocks) {
  std::vector<BlockMemory> memory;
  memory.reserve(blocks.size());
  for (const BlockPlan& block : blocks) memory.push_back(MemoryOf(block));
  return memory;
}

// The bound lies above the plan only by rounding.
void SetBound(StepPlan& plan, double seconds) {
  plan.lower_bound_seconds = std::min(seconds, SecondsOf(plan));
  const double gap = SecondsOf(plan) - plan.lower_bound_seconds;
  plan.gap_ratio = gap <= 0                       ? 0
                   : plan.lower_bound_seconds > 0 ? gap / plan.lower_bound_seconds
                                                  : std::numeric_limits<double>::infinity();
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
  auto blocks = BlockChoices::Create(problem);
  if (!blocks.ok()) return blocks.status();
  std::unique_ptr<StepPlanner> planner(new StepPlanner(problem, *std::move(blocks)));
  planner->LowerTheLeastPeak();
  planner->least_peak_ = planner->least_kept_peak_;
  if (MayMove(problem)) planner->FindLeastWithMoves();
  for (const std::vector<HullPoint>* hull : planner->blocks_->hulls()) planner->full_seconds_ += hull->back().seconds;
  return planner;
}

// Lean plans are searched only where they may lower the least peak: for the block that holds it, or else for the one that saves the
// most bytes there beyond its fewest, which its own peak forces it to.
void StepPlanner::LowerTheLeastPeak() {
  int64_t visits = kLeanVisits;
  std::vector<bool> searched(problem_.blocks.size(), false);
  const auto may_help = [&](int32_t b) { return b >= 0 && blocks_->has_tape(b) && !searched[b]; };
  Choices& choices = blocks_->spread();
  while (true) {
    const LeastStep least =
        has_schedule() ? FindLeastInSchedule(problem_, choices, learn_) : FindLeastStep(problem_, choices, learn_);
    least_kept_peak_ = least.peak;
    int32_t chosen = least.peak.holder.phase == Phase::kBackward ? least.peak.holder.block : -1;
    if (!may_help(chosen)) {
      int64_t most = 0;
      for (size_t b = 0; b < choices.size(); ++b) {
        // Choices come by rising bytes.
        const int64_t forced = choices[b][least.picks[b]].saved_bytes - choices[b].front().saved_bytes;
        if (forced <= most || !may_help(static_cast<int32_t>(b))) continue;
        most = forced;
        chosen = static_cast<int32_t>(b);
      }
    }
    if (!may_help(chosen) || visits <= 0) return;
    searched[chosen] = true;
    blocks_->AddLean(chosen, visits);
  }
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
  least_moving_ = LeanestWithMoves(problem_, WaysOf(blocks_->spread()));
  if (least_moving_.empty()) return;
  const StepPeak moving = FindStepPeak(problem_, MemoryOf(least_moving_));
  if (moving.bytes < least_peak_.bytes) least_peak_ = moving;
}

// Replaces the plan, made without moves, by a better one with moves where there is one, and its bound by one that holds with moves.
void StepPlanner::Move(StepPlan& plan, int64_t limit) {
  const int64_t reachable = std::max(std::min(limit, kMostBytes), least_peak_.bytes);
  const std::optional<MovingBound> bound = BoundMovingStep(problem_, blocks_->hulls(), blocks_->least(), reachable);
  const auto offer = [&](std::vector<BlockPlan> blocks) {
    if (blocks.empty()) return;
    StepPlan moving = MakeStepPlan(std::move(blocks), limit);
    if (moving.step_peak_bytes > reachable) return;
    if (plan.step_peak_bytes > reachable || SecondsOf(moving) < SecondsOf(plan)) plan = std::move(moving);
  };
  offer(least_moving_);
  if (bound.has_value()) {
    offer(FastestWithMoves(problem_, WaysOf(blocks_->Near(bound->kept_bytes)), reachable));
  }
  SetHullBound(plan, limit);
}

std::optional<StepBound> StepPlanner::Bound(int64_t limit) const {
  if (has_schedule()) return BoundSchedule(problem_, blocks_->hulls(), blocks_->least(), std::min(limit, kMostBytes));
  const auto prefix_limits = PrefixLimits(problem_, blocks_->least(), std::min(limit, kMostBytes));
  if (!prefix_limits.has_value()) return std::nullopt;
  return BoundStep(blocks_->hulls(), *prefix_limits);
}

BlockPlan StepPlanner::MakeBlockPlan(size_t b, int32_t choice_id) {
  if (choice_id < BlockChoices::kFirstFreeId) return blocks_->PlanOf(b, choice_id);
  const BlockInstance& block = problem_.blocks[b];
  return ToBlockPlan(refinement_->found(block.tape, choice_id - BlockChoices::kFirstFreeId), problem_.tapes[block.tape], block);
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
  plan.expected_peak_bytes = ExpectedPeakBytes(problem_, plan.blocks, peak.bytes);
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
    SetBound(plan, BoundMovingStep(problem_, blocks_->hulls(), blocks_->least(), std::min(kept, kMostBytes))->seconds);
  } else {
    SetBound(plan, Bound(kept)->seconds);
  }
}

StepPlan StepPlanner::KeepAll() {
  std::vector<int32_t> ids;
  for (size_t b = 0; b < problem_.blocks.size(); ++b) ids.push_back(blocks_->KeepAllId(b));
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
  Choices choices = blocks_->Near(bound.saved_bytes);
  auto picks = PickInSchedule(problem_, choices, std::min(limit, kMostBytes), bound, learn_);
  if (!picks.has_value()) {
    choices = blocks_->spread();
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
  Choices choices = blocks_->Near(bound.saved_bytes);
  std::vector<int32_t> picks = *QuickPicks(problem_, choices, bytes, bound, learn_);
  const double seconds = SecondsOf(choices, picks), gap = seconds - bound.seconds;
  std::vector<int32_t> ids = IdsOf(choices, picks);
  if (gap > kRounding * seconds) {
    blocks_->AddWithin(bound, gap, choices);
    KeepCheapest(bound, std::max(kFewestChoices, kBestVisits / blocks_->VisitsAChoice()), choices);
    const auto best = BestPicks(problem_, choices, bytes, bound, seconds, learn_);
    if (best.has_value()) ids = IdsOf(choices, *best);
  }
  StepPlan plan = PlanOfChoices(ids, limit);
  SetBound(plan, bound.seconds);
  return plan;
}

// Looks for plans between the corners of the hulls, and tightens the bound.
void StepPlanner::Refine(StepPlan& plan, int64_t limit, const Effort& effort) {
  Choices& choices = blocks_->spread();
  for (size_t b = 0; b < choices.size(); ++b) {
    for (Choice& choice : choices[b]) blocks_->FindOwnPeak(b, choice);
  }
  if (refinement_ == nullptr) refinement_ = std::make_unique<StepRefinement>(problem_, blocks_->tapes());
  const StepRefinement::Result result = refinement_->Refine(choices, BlockChoices::kFirstFreeId, limit, *Bound(limit),
                                                            plan.replay_seconds, effort.gap_of_full_replay * full_seconds_, effort);
  const double bound_seconds = std::max(plan.lower_bound_seconds, result.bound_seconds);
  if (!result.picks.empty()) plan = PlanOfChoices(result.picks, limit);
  SetBound(plan, bound_seconds);
}

StepPlan StepPlanner::Plan(int64_t limit) { return PlanClosely(limit, {}); }

StepPlan StepPlanner::PlanClosely(int64_t limit, const Effort& effort) {
  const int64_t reachable = std::max(limit, least_kept_peak_.bytes);
  StepPlan plan = limit == kUnlimitedBytes ? KeepAll() : FastestUnder(reachable);
  const bool close = plan.replay_seconds - plan.lower_bound_seconds <= effort.gap_of_full_replay * full_seconds_;
  if (effort.visits > 0 && !close && !has_schedule()) Refine(plan, std::min(reachable, kMostBytes), effort);
  if (MayMove(problem_) && limit != kUnlimitedBytes) Move(plan, limit);
  plan.feasible = limit == 0 || plan.step_peak_bytes <= limit;
  // The search may come upon one.
  if (plan.step_peak_bytes < least_peak_.bytes) least_peak_ = {plan.step_peak_bytes, plan.peak_holder};
  plan.least_peak_bytes = least_peak_.bytes;
  plan.least_peak_holder = least_peak_.holder;
  return plan;
}

absl::StatusOr<BlockPlan> StepPlanner::EvaluateBlock(size_t b, std::vector<int32_t> saved,
                                                     const std::vector<int32_t>& moved) const {
  const BlockInstance& block = problem_.blocks[b];
  if (!blocks_->has_tape(b)) {
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
    if (s >= 0 && static_cast<size_t>(s) < tape.storages.size() && blocks_->tape_plans(b).index().intermediate(s))
      saved.push_back(s);
  }
  std::sort(saved.begin(), saved.end());
  const absl::StatusOr<TapePlan> plan = EvaluateTapePlan(blocks_->tape_plans(b).index(), saved);
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
