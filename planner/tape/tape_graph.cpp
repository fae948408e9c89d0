#include "planner/tape/tape_graph.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "planner/model/validate.h"

namespace tidetape::planner {
namespace {

constexpr int32_t kReplayed = -1;
constexpr int32_t kNotReplayed = -2;
// One decision may bring another one about. Chains of them are short; where one is not, the rest stays undecided.
constexpr int kDecidingRounds = 32;

}  // namespace

// Builds the whole graph first (ops by their index, then storages), then contracts what infinite arcs decide.
class TapeGraph::Builder {
 public:
  Builder(const TapeIndex& index, Rewritten rewritten)
      : index_(index), tape_(index.tape()), rewritten_(rewritten), ops_(static_cast<int32_t>(tape_.ops.size())) {}

  absl::StatusOr<TapeGraph> Build() {
    FindRelevantOps();
    supply_.assign(ops_, 0);
    forced_.assign(ops_, false);
    FindReaders();
    for (size_t s = 0; s < tape_.storages.size(); ++s) {
      if (index_.intermediate(s)) AddStorage(s);
    }
    DecideRewritten();
    return Contract();
  }

 private:
  // Ops on which a consumed storage depends while nothing is saved.
  void FindRelevantOps() {
    relevant_.assign(ops_, false);
    std::vector<int32_t> stack;
    const auto visit = [&](int32_t op) {
      if (op < 0 || relevant_[op]) return;
      relevant_[op] = true;
      stack.push_back(op);
    };
    for (int32_t s : tape_.consumed) {
      if (index_.consumed(s)) visit(index_.last_writer(s));
    }
    while (!stack.empty()) {
      const int32_t op = stack.back();
      stack.pop_back();
      for (const OpInput& input : index_.inputs(op)) visit(input.producer);
    }
  }

  // By storage: relevant ops that read its last version, and relevant ops that stand on an earlier one or write it.
  void FindReaders() {
    last_readers_.resize(tape_.storages.size());
    early_ops_.resize(tape_.storages.size());
    for (int32_t i = 0; i < ops_; ++i) {
      if (!relevant_[i]) continue;
      for (const OpInput& input : index_.inputs(i)) {
        (input.last ? last_readers_ : early_ops_)[input.storage].push_back(i);
        if (!input.last && input.producer >= 0) AddArc(i, input.producer, kInfiniteBytes);
      }
      for (int32_t s : index_.outputs(i)) {
        std::vector<int32_t>& list = early_ops_[s];
        if (index_.rewritten(s) && (list.empty() || list.back() != i)) list.push_back(i);
      }
    }
  }

  void AddStorage(int32_t s) {
    const Storage& storage = tape_.storages[s];
    if (storage.must_save) {
      graph_.fixed_bytes_ += index_.save_bytes(s);
      return;
    }
    const int32_t writer = index_.last_writer(s);
    const std::vector<int32_t>& readers = last_readers_[s];
    if (writer < 0 || (!index_.consumed(s) && readers.empty())) return;
    if (index_.consumed(s)) {
      if (storage.must_recompute) {
        forced_[writer] = true;
        forced_by_.emplace_back(writer, s);
      } else {
        supply_[writer] += index_.save_bytes(s);
      }
    } else if (storage.must_recompute) {
      for (int32_t reader : readers) AddArc(reader, writer, kInfiniteBytes);
    } else if (index_.save_bytes(s) > 0) {
      AddReaders(readers, writer, index_.save_bytes(s));
    }
    if (index_.rewritten(s) && !storage.must_recompute) ForbidSavingBeside(s, writer);
  }

  void AddReaders(const std::vector<int32_t>& readers, int32_t writer, int64_t bytes) {
    if (readers.size() == 1) {
      AddArc(readers[0], writer, bytes);
      return;
    }
    const int32_t node = static_cast<int32_t>(supply_.size());
    supply_.push_back(0);
    for (int32_t reader : readers) AddArc(reader, node, kInfiniteBytes);
    AddArc(node, writer, bytes);
  }

  void ForbidSavingBeside(int32_t s, int32_t writer) {
    const bool others = std::any_of(early_ops_[s].begin(), early_ops_[s].end(), [&](int32_t op) {
      const auto outputs = index_.outputs(op);
      return outputs.size() != 1 || outputs[0] != s;
    });
    if (others && !index_.consumed(s)) {
      undecided_.push_back(s);
    } else {
      AddEarlyArcs(s, writer);
    }
  }

  void AddEarlyArcs(int32_t s, int32_t writer) {
    circles_possible_ = true;
    for (int32_t op : early_ops_[s]) {
      if (op != writer) AddArc(op, writer, kInfiniteBytes);
    }
  }

  // Where every plan replays an op that stands on an earlier version, no plan saves the storage, and that is exact again. For the
  // rest the arcs start at ops that need not be replayed, so that they never take the last plan away.
  void DecideRewritten() {
    std::vector<int32_t> replayed;
    for (int32_t i = 0; i < ops_; ++i) {
      if (forced_[i]) replayed.push_back(i);
    }
    bool changed = true;
    for (int round = 0; changed && round < kDecidingRounds && !undecided_.empty(); ++round) {
      changed = false;
      const std::vector<bool> inside = Closure(replayed, /*backward=*/false, nullptr);
      std::vector<int32_t> rest;
      for (int32_t s : undecided_) {
        if (std::none_of(early_ops_[s].begin(), early_ops_[s].end(), [&](int32_t op) { return inside[op]; })) {
          rest.push_back(s);
          continue;
        }
        for (int32_t reader : last_readers_[s]) AddArc(reader, index_.last_writer(s), kInfiniteBytes);
        changed = true;
      }
      undecided_ = std::move(rest);
    }
    graph_.exact_ = undecided_.empty();
    if (rewritten_ == Rewritten::kRelaxed) return;
    for (int32_t s : undecided_) AddEarlyArcs(s, index_.last_writer(s));
  }

  void AddArc(int32_t from, int32_t to, int64_t bytes) { arcs_.push_back({from, to, bytes}); }

  // Nodes that infinite arcs lead to from the given ones, in the given direction. parents: by node, where it was entered from.
  std::vector<bool> Closure(const std::vector<int32_t>& starts, bool backward, std::vector<int32_t>* parents) const {
    const size_t nodes = supply_.size();
    std::vector<int32_t> first(nodes + 1, 0);
    for (const Arc& arc : arcs_) first[(backward ? arc.to : arc.from) + 1] += arc.bytes == kInfiniteBytes;
    for (size_t v = 0; v < nodes; ++v) first[v + 1] += first[v];
    std::vector<int32_t> next(first.begin(), first.end() - 1), ends(first.back());
    for (const Arc& arc : arcs_) {
      if (arc.bytes != kInfiniteBytes) continue;
      ends[next[backward ? arc.to : arc.from]++] = backward ? arc.from : arc.to;
    }
    std::vector<bool> found(nodes, false);
    std::vector<int32_t> queue;
    for (int32_t v : starts) {
      if (!found[v]) queue.push_back(v);
      found[v] = true;
    }
    if (parents != nullptr) parents->assign(nodes, -1);
    for (size_t head = 0; head < queue.size(); ++head) {
      const int32_t v = queue[head];
      for (int32_t a = first[v]; a < first[v + 1]; ++a) {
        if (found[ends[a]]) continue;
        found[ends[a]] = true;
        if (parents != nullptr) (*parents)[ends[a]] = v;
        queue.push_back(ends[a]);
      }
    }
    return found;
  }

  // By node: a number that it shares with the nodes with which infinite arcs join it in a circle (strongly connected components,
  // after Tarjan): they are inside together. The writers of one storage are such a circle, and as one node they cost the cut no
  // long paths.
  std::vector<int32_t> Circles() const {
    const auto nodes = static_cast<int32_t>(supply_.size());
    std::vector<int32_t> circles(nodes), first(nodes + 1, 0);
    for (int32_t v = 0; v < nodes; ++v) circles[v] = v;
    if (!circles_possible_) return circles;
    for (const Arc& arc : arcs_) first[arc.from + 1] += arc.bytes == kInfiniteBytes;
    for (int32_t v = 0; v < nodes; ++v) first[v + 1] += first[v];
    std::vector<int32_t> next(first.begin(), first.end() - 1), ends(first.back());
    for (const Arc& arc : arcs_) {
      if (arc.bytes == kInfiniteBytes) ends[next[arc.from]++] = arc.to;
    }
    next.assign(first.begin(), first.end() - 1);
    std::vector<int32_t> entered(nodes, -1), earliest(nodes), path, open;
    std::vector<bool> closed(nodes, false);
    int32_t count = 0;
    const auto enter = [&](int32_t v) {
      entered[v] = earliest[v] = count++;
      path.push_back(v);
      open.push_back(v);
    };
    for (int32_t root = 0; root < nodes; ++root) {
      if (entered[root] < 0) enter(root);
      while (!path.empty()) {
        const int32_t v = path.back();
        if (next[v] < first[v + 1]) {
          const int32_t to = ends[next[v]++];
          if (entered[to] < 0) {
            enter(to);
          } else if (!closed[to]) {
            earliest[v] = std::min(earliest[v], entered[to]);
          }
          continue;
        }
        path.pop_back();
        if (!path.empty()) earliest[path.back()] = std::min(earliest[path.back()], earliest[v]);
        if (earliest[v] != entered[v]) continue;
        int32_t member = -1;
        do {
          member = open.back();
          open.pop_back();
          closed[member] = true;
          circles[member] = v;
        } while (member != v);
      }
    }
    return circles;
  }

  absl::Status Infeasible(int32_t op, const std::vector<int32_t>& parents) const {
    int32_t root = op;
    while (parents[root] >= 0) root = parents[root];
    int32_t storage = 0;
    for (const auto& [writer, s] : forced_by_) {
      if (writer == root) storage = s;
    }
    return absl::InvalidArgumentError(absl::StrCat(BlockText(tape_), ": consumed ", StorageText(tape_, storage),
                                                   " is must_recompute, and its replay needs ", OpText(tape_, op), ", which ",
                                                   TapeIndex::BarText(index_.bar(op)), "; let a storage between them be saved"));
  }

  absl::StatusOr<TapeGraph> Contract() {
    std::vector<int32_t> replayed, barred;
    for (int32_t i = 0; i < ops_; ++i) {
      if (forced_[i]) replayed.push_back(i);
      if (relevant_[i] && index_.bar(i) != ReplayBar::kNone) barred.push_back(i);
    }
    std::vector<int32_t> parents;
    const std::vector<bool> inside = Closure(replayed, /*backward=*/false, &parents);
    for (int32_t op : barred) {
      if (inside[op]) return Infeasible(op, parents);
    }
    const std::vector<bool> outside = Closure(barred, /*backward=*/true, nullptr);

    const std::vector<int32_t> circles = Circles();
    std::vector<int32_t> node_of_circle(supply_.size(), -1);
    std::vector<int32_t> ids(supply_.size());
    for (size_t v = 0; v < ids.size(); ++v) {
      const bool op = v < static_cast<size_t>(ops_);
      if (inside[v]) {
        ids[v] = kReplayed;
        if (op) graph_.fixed_seconds_ += tape_.ops[v].cost_seconds;
      } else if (outside[v] || (op && !relevant_[v])) {
        ids[v] = kNotReplayed;
        graph_.fixed_bytes_ += supply_[v];
      } else {
        int32_t& node = node_of_circle[circles[v]];
        if (node < 0) {
          node = graph_.nodes();
          graph_.supply_bytes_.push_back(0);
          graph_.demand_bytes_.push_back(0);
          graph_.demand_seconds_.push_back(0);
        }
        ids[v] = node;
        graph_.supply_bytes_[node] += supply_[v];
        if (op) graph_.demand_seconds_[node] += tape_.ops[v].cost_seconds;
      }
    }
    for (const Arc& arc : arcs_) {
      const int32_t from = ids[arc.from], to = ids[arc.to];
      if (from == kNotReplayed || to == kReplayed) continue;
      if (from == kReplayed && to == kNotReplayed) {
        graph_.fixed_bytes_ += arc.bytes;
      } else if (from == kReplayed) {
        graph_.supply_bytes_[to] += arc.bytes;
      } else if (to == kNotReplayed) {
        graph_.demand_bytes_[from] += arc.bytes;
      } else if (from != to) {
        graph_.arcs_.push_back({from, to, arc.bytes});
      }
    }
    graph_.op_nodes_.assign(ids.begin(), ids.begin() + ops_);
    return std::move(graph_);
  }

  const TapeIndex& index_;
  const BlockTape& tape_;
  const Rewritten rewritten_;
  const int32_t ops_;
  TapeGraph graph_;
  std::vector<bool> relevant_;                          // by op
  std::vector<std::vector<int32_t>> last_readers_;      // by storage
  std::vector<std::vector<int32_t>> early_ops_;         // by storage
  std::vector<int64_t> supply_;                         // by node of the whole graph
  std::vector<bool> forced_;                            // by op
  std::vector<std::pair<int32_t, int32_t>> forced_by_;  // (op, storage)
  std::vector<Arc> arcs_;
  bool circles_possible_ = false;   // other infinite arcs lead back in program order
  std::vector<int32_t> undecided_;  // storages with several writers on which the cut may not be exact
};

absl::StatusOr<TapeGraph> TapeGraph::Build(const TapeIndex& index, Rewritten rewritten) {
  return Builder(index, rewritten).Build();
}

std::vector<int32_t> TapeGraph::SavedStorages(const TapeIndex& index, const Flags& inside) const {
  const BlockTape& tape = index.tape();
  Flags replayed(tape.ops.size());
  for (size_t i = 0; i < replayed.size(); ++i) {
    replayed[i] = op_nodes_[i] == kReplayed || (op_nodes_[i] >= 0 && inside[op_nodes_[i]]);
  }
  Flags saved(tape.storages.size(), false);
  for (int32_t s : index.must_save()) saved[s] = true;
  for (int32_t s : tape.consumed) {
    if (index.consumed(s) && !saved[s] && !replayed[index.last_writer(s)]) saved[s] = true;
  }
  for (size_t i = 0; i < replayed.size(); ++i) {
    if (!replayed[i]) continue;
    for (const OpInput& input : index.inputs(i)) {
      if (input.last && input.producer >= 0 && !replayed[input.producer]) saved[input.storage] = true;
    }
  }
  std::vector<int32_t> list;
  for (size_t s = 0; s < saved.size(); ++s) {
    if (saved[s]) list.push_back(static_cast<int32_t>(s));
  }
  return list;
}

}  // namespace tidetape::planner
