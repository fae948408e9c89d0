#include "planner/tape/block_search.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/model/validate.h"
#include "planner/tape/plan_space.h"

namespace tidetape::planner {
namespace {

// A way in the tree of decisions, kept as small as can be: the tape under them is made again when the node's turn comes.
struct Node {
  struct Decision {
    int32_t storage = 0;
    bool save = false;
  };
  std::vector<Decision> decisions;
  double bound_seconds = 0;
  int32_t next_storage = -1;  // to decide; -1: none is left
};

struct LaterBound {
  bool operator()(const Node& a, const Node& b) const { return a.bound_seconds > b.bound_seconds; }
};

class Search {
 public:
  Search(const BlockTape& tape, int64_t limit) : tape_(tape), decided_(tape), limit_(limit) {}

  absl::StatusOr<FastestPlan> Run(double gap_seconds, const Effort& effort) {
    int64_t visits = effort.visits;
    Visit({});
    while (!open_.empty() && best_seconds() - open_.top().bound_seconds > gap_seconds && visits > 0 && !effort.Stopped()) {
      const Node node = open_.top();
      open_.pop();
      for (const bool save : {true, false}) {
        Node half;
        half.decisions = node.decisions;
        half.decisions.push_back({node.next_storage, save});
        half.bound_seconds = node.bound_seconds;
        Visit(std::move(half));
        visits -= VisitsARegion(tape_);
      }
    }
    if (best_ == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(BlockText(tape_), ": no plan that was found saves at most ", limit_, " bytes"));
    }
    const double bound = open_.empty() ? best_seconds() : std::min(best_seconds(), open_.top().bound_seconds);
    return FastestPlan{.plan = *best_, .bound_seconds = bound};
  }

 private:
  double best_seconds() const { return best_ == nullptr ? std::numeric_limits<double>::infinity() : best_->replay_seconds; }

  void Decide(const std::vector<Node::Decision>& decisions) {
    for (const auto& [storage, save] : decisions) {
      (save ? decided_.storages[storage].must_save : decided_.storages[storage].must_recompute) = true;
    }
  }

  void Undo(const std::vector<Node::Decision>& decisions) {
    for (const Node::Decision& decision : decisions) decided_.storages[decision.storage] = tape_.storages[decision.storage];
  }

  // Bounds a node and offers its corners; keeps it where a better plan may lie below it.
  void Visit(Node node) {
    Decide(node.decisions);
    Bound(node);
    Undo(node.decisions);
    if (node.next_storage >= 0 && node.bound_seconds < best_seconds()) open_.push(std::move(node));
  }

  void Bound(Node& node) {
    const auto made = TapePlans::Create(decided_);
    if (!made.ok()) return;
    TapePlans& plans = **made;
    node.bound_seconds = std::max(node.bound_seconds, BoundSeconds(plans.bound(), limit_));
    if (node.bound_seconds >= best_seconds()) return;
    const std::vector<Frontier::Vertex>& vertices = plans.vertices();
    const auto within = std::partition_point(vertices.begin(), vertices.end() - 1,
                                             [&](const Frontier::Vertex& vertex) { return vertex.bytes > limit_; });
    const auto at = static_cast<int32_t>(within - vertices.begin());
    const TapePlan& few = plans.AtVertex(at);
    const TapePlan& many = plans.AtVertex(std::max(0, at - 1));
    Offer(few);
    Offer(many);
    std::vector<int32_t> differing;
    std::set_symmetric_difference(few.saved.begin(), few.saved.end(), many.saved.begin(), many.saved.end(),
                                  std::back_inserter(differing));
    node.next_storage = LargestUndecided(decided_, differing);
    if (node.next_storage < 0) node.next_storage = LargestUndecided(decided_, MadeStorages(plans.index()));
  }

  void Offer(const TapePlan& plan) {
    if (plan.saved_bytes <= limit_ && plan.replay_seconds < best_seconds()) best_ = std::make_unique<TapePlan>(plan);
  }

  const BlockTape& tape_;
  BlockTape decided_;  // with the decisions of one node as must_save and must_recompute
  const int64_t limit_;
  std::priority_queue<Node, std::vector<Node>, LaterBound> open_;
  std::unique_ptr<TapePlan> best_;
};

}  // namespace

absl::StatusOr<FastestPlan> SearchBlock(const BlockTape& tape, int64_t saved_bytes_limit, double gap_seconds,
                                        const Effort& effort) {
  return Search(tape, saved_bytes_limit).Run(gap_seconds, effort);
}

}  // namespace tidetape::planner
