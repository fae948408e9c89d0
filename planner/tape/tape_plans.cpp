#include "planner/tape/tape_plans.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "planner/tape/lean_search.h"

namespace tidetape::planner {
namespace {

std::vector<HullPoint> PointsOf(const Frontier& frontier) {
  std::vector<HullPoint> points;
  for (const Frontier::Vertex& vertex : frontier.vertices()) points.push_back({vertex.bytes, vertex.seconds});
  return points;
}

}  // namespace

absl::StatusOr<TapePlan> EvaluateTapePlan(const TapeIndex& index, const std::vector<int32_t>& saved) {
  absl::StatusOr<ReplaySet> set = FindReplaySet(index, saved);
  if (!set.ok()) return set.status();
  return TapePlan{.saved = Positions(set->saved),
                  .replayed = Positions(set->replayed),
                  .saved_bytes = set->saved_bytes,
                  .replay_seconds = set->replay_seconds,
                  .profile = SimulateReplay(index, *set)};
}

std::vector<HullPoint> LowerHull(std::vector<HullPoint> points) {
  std::sort(points.begin(), points.end(), [](const HullPoint& a, const HullPoint& b) {
    return a.seconds != b.seconds ? a.seconds < b.seconds : a.bytes < b.bytes;
  });
  std::vector<HullPoint> hull;
  for (const HullPoint& point : points) {
    if (!hull.empty() && point.bytes >= hull.back().bytes) continue;
    const auto above_line = [&](const HullPoint& a, const HullPoint& b) {
      return (b.seconds - a.seconds) * (a.bytes - point.bytes) >= (point.seconds - a.seconds) * (a.bytes - b.bytes);
    };
    while (hull.size() >= 2 && above_line(hull[hull.size() - 2], hull.back())) hull.pop_back();
    hull.push_back(point);
  }
  return hull;
}

absl::StatusOr<std::unique_ptr<TapePlans>> TapePlans::Create(const BlockTape& tape) {
  TapeIndex index(tape);
  absl::StatusOr<TapeGraph> graph = TapeGraph::Build(index);
  if (!graph.ok()) return graph.status();
  return std::unique_ptr<TapePlans>(new TapePlans(tape, std::move(index), *std::move(graph)));
}

TapePlans::TapePlans(const BlockTape& tape, TapeIndex index, TapeGraph graph)
    : index_(std::move(index)), graph_(std::move(graph)), frontier_(graph_), event_bytes_(BytesUnderEveryPlan(index_)) {
  at_vertex_.resize(vertices().size());
  // A relaxation of a tape that has plans has some, too.
  bound_ = graph_.exact() ? PointsOf(frontier_) : PointsOf(Frontier(*TapeGraph::Build(index_, Rewritten::kRelaxed)));
}

OwnPeakRange TapePlans::RangeOfOwnPeaks(const BlockInstance& instance) const {
  const BlockTape& tape = index_.tape();
  int64_t all = 0, workspace = 0;
  for (size_t s = 0; s < tape.storages.size(); ++s) all += index_.intermediate(s) ? index_.bytes(s) : 0;
  for (size_t i = 0; i < tape.ops.size(); ++i) workspace = std::max(workspace, index_.workspace_bytes(i));
  const LiveBytes first = LiveBeside(tape, instance, 0);
  OwnPeakRange range{.least_bytes = std::numeric_limits<int64_t>::min(),
                     .most_bytes = std::numeric_limits<int64_t>::min(),
                     // All saved bytes are alive when the first op of the first event runs, or else when the event reads.
                     .standing_bytes = std::min(first.start, first.gradient)};
  for (size_t e = 0; e < event_bytes_.size(); ++e) {
    const auto [start, gradient] = LiveBeside(tape, instance, e);
    const auto [held, passed] = event_bytes_[e];
    if (gradient + held > range.least_bytes) {
      range.least_bytes = gradient + held;
      range.least_event = e;
    }
    range.most_bytes = std::max({range.most_bytes, start + all + workspace, gradient + all});
    range.standing_bytes = std::max(range.standing_bytes, gradient + held - passed);
  }
  return range;
}

TapePlans& TapePlans::AtEvent(size_t event) {
  EventPlans& at = at_event_[event];
  if (at.plans == nullptr) {
    at.tape = TapeAtEvent(index_, event);
    at.plans = TapePlans::Create(at.tape).value();  // has the plans that this tape has
  }
  return *at.plans;
}

const TapePlan& TapePlans::AtVertex(int32_t vertex) {
  if (at_vertex_[vertex] == nullptr) {
    // The cut's plans are valid: see TapeGraph.
    at_vertex_[vertex] =
        std::make_unique<TapePlan>(EvaluateTapePlan(index_, graph_.SavedStorages(index_, frontier_.Inside(vertex))).value());
  }
  return *at_vertex_[vertex];
}

const TapePlan& TapePlans::KeepAll() {
  if (keep_all_ != nullptr) return *keep_all_;
  const BlockTape& tape = index_.tape();
  Flags saved(tape.storages.size(), false);
  for (size_t s = 0; s < saved.size(); ++s) {
    if (!index_.intermediate(s)) continue;
    saved[s] = tape.storages[s].must_save || (index_.consumed(s) && !tape.storages[s].must_recompute);
  }
  absl::StatusOr<TapePlan> plan = EvaluateTapePlan(index_, Positions(saved));
  if (!plan.ok() || plan->replay_seconds > vertices().front().seconds * (1 + 1e-9)) {
    // What must be recomputed needs more than what backward reads; the fastest vertex has it.
    for (int32_t s : AtVertex(0).saved) saved[s] = true;
    plan = EvaluateTapePlan(index_, Positions(saved));
  }
  keep_all_ = std::make_unique<TapePlan>(plan.ok() ? *std::move(plan) : AtVertex(0));
  return *keep_all_;
}

void TapePlans::SearchLeanPlans(const BlockInstance& instance, int64_t& visits) {
  const BlockTape& tape = index_.tape();
  const EvaluateSaved evaluate = [&](const std::vector<int32_t>& saved) -> std::optional<LeanPoint> {
    visits -= static_cast<int64_t>(tape.ops.size() + 1);
    const absl::StatusOr<TapePlan> plan = EvaluateTapePlan(index_, saved);
    if (!plan.ok()) return std::nullopt;
    return LeanPoint{plan->saved_bytes, OwnPeakBytes(tape, instance, plan->profile)};
  };
  std::vector<int32_t> candidates;
  for (size_t s = 0; s < tape.storages.size(); ++s) {
    const Storage& storage = tape.storages[s];
    if (index_.intermediate(s) && !storage.must_recompute && !storage.must_save) candidates.push_back(static_cast<int32_t>(s));
  }
  std::sort(candidates.begin(), candidates.end(),
            [&](int32_t a, int32_t b) { return std::pair(-index_.save_bytes(a), a) < std::pair(-index_.save_bytes(b), b); });
  // Three searches, and a quarter is left for others.
  const int64_t evaluations = std::max<int64_t>(0, visits) / 4 / static_cast<int64_t>(tape.ops.size() + 1);
  const int32_t last = static_cast<int32_t>(vertices().size()) - 1;
  std::vector<std::vector<int32_t>> found;
  // A first pass that cannot be ended finds nothing.
  if (evaluations > static_cast<int64_t>(candidates.size())) {
    found = AddWhatLowersThePeak(AtVertex(last).saved, candidates, evaluations, evaluate);
  }
  const TapePlan* leanest = nullptr;
  for (const auto& plan : at_vertex_) {
    if (plan == nullptr) continue;
    if (leanest == nullptr || OwnPeakBytes(tape, instance, plan->profile) < OwnPeakBytes(tape, instance, leanest->profile)) {
      leanest = plan.get();
    }
  }
  if (!found.empty()) found.push_back(DropWhatDoesNotLowerThePeak(found.back(), candidates, evaluations, evaluate));
  found.push_back(DropWhatDoesNotLowerThePeak(leanest->saved, candidates, evaluations, evaluate));
  for (const std::vector<int32_t>& saved : found) {
    const bool known = std::any_of(lean_.begin(), lean_.end(), [&](const TapePlan& plan) { return plan.saved == saved; });
    if (!known) lean_.push_back(EvaluateTapePlan(index_, saved).value());
  }
}

}  // namespace tidetape::planner
