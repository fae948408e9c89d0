#include "planner/block_search.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <queue>
#include <utility>

namespace tidetape::planner {
namespace {

// Index, graph, cuts and evaluations of a node, in visits of an op.
constexpr int64_t kVisitsANode = 12;

class Search {
 public:
  Search(const BlockTape& tape, TapePlans& root, int64_t& visits) : root_(root), visits_(visits) {
    auto node = std::make_unique<Node>();
    node->tape = tape;
    AddPlans(root);
    node->plans = &root;
    Enqueue(std::move(node));
  }

  Staircase Run(double gap_seconds) {
    while (!open_.empty() && visits_ > 0) {
      std::unique_ptr<Node> node = Pop();
      const Place place = WidestGap(*node);
      if (!open_.empty() && place.gap < open_.front()->gap) {
        node->gap = place.gap;
        Push(std::move(node));
        continue;
      }
      if (place.gap <= gap_seconds) {
        node->gap = place.gap;
        Push(std::move(node));
        break;
      }
      Split(*node, place);
    }
    double gap = unresolved_;
    for (const auto& node : open_) gap = std::max(gap, WidestGap(*node).gap);
    double below = BoundAt(root_.bound(), steps_.back().bytes - 1);
    return {std::move(steps_), gap, below};
  }

 private:
  struct Node {
    BlockTape tape;
    TapePlans* plans = nullptr;  // the root's, or `owned`
    std::unique_ptr<TapePlans> owned;
    double gap = 0;
  };
  struct Place {
    double gap = 0;
    int64_t bytes = 0;
  };

  static bool Narrower(const std::unique_ptr<Node>& a, const std::unique_ptr<Node>& b) { return a->gap < b->gap; }
  void Push(std::unique_ptr<Node> node) {
    open_.push_back(std::move(node));
    std::push_heap(open_.begin(), open_.end(), Narrower);
  }
  std::unique_ptr<Node> Pop() {
    std::pop_heap(open_.begin(), open_.end(), Narrower);
    std::unique_ptr<Node> node = std::move(open_.back());
    open_.pop_back();
    return node;
  }

  void Enqueue(std::unique_ptr<Node> node) {
    node->gap = WidestGap(*node).gap;
    Push(std::move(node));
  }

  // Corners that no known plan beats become steps.
  void AddPlans(TapePlans& plans) {
    visits_ -= kVisitsANode * static_cast<int64_t>(plans.index().tape().ops.size() + 1);
    for (size_t v = 0; v < plans.vertices().size(); ++v) {
      // The cut may see more than the plan costs, never less.
      const Frontier::Vertex& vertex = plans.vertices()[v];
      const auto at = FirstAtMost(vertex.bytes);
      if (at != steps_.end() && at->seconds <= vertex.seconds) continue;
      const TapePlan& plan = plans.AtVertex(static_cast<int32_t>(v));
      AddStep({plan.saved_bytes, plan.replay_seconds, plan.saved});
    }
  }

  std::vector<Staircase::Step>::iterator FirstAtMost(int64_t bytes) {
    return std::partition_point(steps_.begin(), steps_.end(), [&](const Staircase::Step& step) { return step.bytes > bytes; });
  }

  void AddStep(Staircase::Step step) {
    auto at = FirstAtMost(step.bytes);
    if (at != steps_.end() && at->seconds <= step.seconds) return;
    if (at != steps_.end() && at->bytes == step.bytes) at = steps_.erase(at);
    at = steps_.insert(at, std::move(step));
    // Richer steps that are no faster go.
    auto first = at;
    while (first != steps_.begin() && std::prev(first)->seconds >= at->seconds) --first;
    steps_.erase(first, at);
  }

  // Seconds that no plan of the node with at most so many bytes stays below; infinite where it has none.
  static double BoundAt(const std::vector<HullPoint>& hull, int64_t bytes) {
    if (bytes < hull.back().bytes) return std::numeric_limits<double>::infinity();
    const auto lean = std::partition_point(hull.begin(), hull.end(), [&](const HullPoint& point) { return point.bytes > bytes; });
    if (lean == hull.begin()) return lean->seconds;
    const HullPoint &from = *std::prev(lean), &to = *lean;
    return to.seconds +
           (from.seconds - to.seconds) * static_cast<double>(bytes - to.bytes) / static_cast<double>(from.bytes - to.bytes);
  }

  // Where the node's hull lies farthest below the steps: just before one, where the next leaner one still has to do.
  Place WidestGap(const Node& node) const {
    Place widest;
    const std::vector<HullPoint>& hull = node.plans->bound();
    for (size_t i = 1; i < steps_.size(); ++i) {
      const int64_t bytes = steps_[i - 1].bytes - 1;
      const double gap = steps_[i].seconds - BoundAt(hull, bytes);
      if (gap > widest.gap) widest = {gap, bytes};
    }
    return widest;
  }

  void Split(Node& node, const Place& place) {
    const int32_t storage = BranchingStorage(node, place.bytes);
    if (storage < 0) {
      unresolved_ = std::max(unresolved_, place.gap);
      return;
    }
    for (const bool save : {true, false}) {
      auto child = std::make_unique<Node>();
      child->tape = node.tape;
      (save ? child->tape.storages[storage].must_save : child->tape.storages[storage].must_recompute) = true;
      auto plans = TapePlans::Create(child->tape);
      if (!plans.ok()) continue;  // the other half has all plans
      child->owned = *std::move(plans);
      child->plans = child->owned.get();
      AddPlans(*child->plans);
      Enqueue(std::move(child));
    }
  }

  // The largest storage that one of the corners around the place saves and the other does not; -1 where they differ in none that a
  // decision is about.
  static int32_t BranchingStorage(Node& node, int64_t bytes) {
    const std::vector<Frontier::Vertex>& vertices = node.plans->vertices();
    const auto lean = std::partition_point(vertices.begin(), vertices.end(),
                                           [&](const Frontier::Vertex& vertex) { return vertex.bytes > bytes; });
    const auto at = static_cast<int32_t>(std::min<ptrdiff_t>(lean - vertices.begin(), static_cast<ptrdiff_t>(vertices.size()) - 1));
    const std::vector<int32_t>& few = node.plans->AtVertex(at).saved;
    const std::vector<int32_t>& many = node.plans->AtVertex(std::max(0, at - 1)).saved;
    std::vector<int32_t> differing;
    std::set_symmetric_difference(few.begin(), few.end(), many.begin(), many.end(), std::back_inserter(differing));
    int32_t largest = -1;
    for (int32_t s : differing) {
      const Storage& storage = node.tape.storages[s];
      if (storage.must_save || storage.must_recompute) continue;
      if (largest < 0 || storage.bytes > node.tape.storages[largest].bytes) largest = s;
    }
    return largest;
  }

  const TapePlans& root_;
  int64_t& visits_;
  std::vector<Staircase::Step> steps_;       // by falling bytes, rising seconds
  std::vector<std::unique_ptr<Node>> open_;  // a heap by gap, which may be out of date: too wide, never too narrow
  double unresolved_ = 0;
};

}  // namespace

Staircase SearchBlock(const BlockTape& tape, TapePlans& root, double gap_seconds, int64_t& visits) {
  return Search(tape, root, visits).Run(gap_seconds);
}

}  // namespace tidetape::planner
