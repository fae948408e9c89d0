#include "planner/tape/frontier.h"

#include <algorithm>

#include "planner/tape/min_cut.h"

namespace tidetape::planner {
namespace {

constexpr double kRelativeTolerance = 1e-12;

// Works on the order of nodes: a part is a range of it, what lies before is replayed, what lies after is not.
class HullBuilder {
 public:
  explicit HullBuilder(const TapeGraph& graph)
      : supply_(graph.supply_bytes()),
        demand_(graph.demand_bytes()),
        seconds_(graph.demand_seconds()),
        arcs_(graph.arcs()),
        order_(graph.nodes()),
        local_(graph.nodes()) {
    for (int32_t v = 0; v < graph.nodes(); ++v) order_[v] = v;
    int64_t bytes = graph.fixed_bytes();
    for (int64_t supply : supply_) bytes += supply;
    vertices_.push_back({.bytes = bytes, .seconds = graph.fixed_seconds(), .inside = 0});
  }

  void Run() {
    Part rest{
        .begin = 0, .end = static_cast<int32_t>(order_.size()), .arcs_begin = 0, .arcs_end = static_cast<int32_t>(arcs_.size())};
    // The first vertex replays nothing that takes time; the last one whatever saves bytes.
    const auto [fastest, slower] = Split(
        rest, [&](int32_t v) { return seconds_[v] > 0 ? kInfiniteCapacity : 0; }, 0);
    vertices_.back().inside = fastest.end;
    vertices_.back().bytes -= fastest.bytes_off;
    const auto [hull, never] = Split(
        slower, [](int32_t) { return 0.0; }, 0);
    if (hull.bytes_off <= 0) return;
    std::vector<Part> stack{hull};
    while (!stack.empty()) {
      const Part part = stack.back();
      stack.pop_back();
      const double price = part.bytes_off / part.seconds_on;
      const auto [left, right] = part.end - part.begin == 1 ? std::pair<Part, Part>()
                                                            : Split(
                                                                  part, [&](int32_t v) { return price * seconds_[v]; },
                                                                  kRelativeTolerance * part.bytes_off);
      const double gain = left.bytes_off - price * left.seconds_on;
      if (left.begin == left.end || right.begin == right.end || gain <= kRelativeTolerance * part.bytes_off) {
        const Frontier::Vertex& last = vertices_.back();
        vertices_.push_back({last.bytes - part.bytes_off, last.seconds + part.seconds_on, part.end});
      } else {
        stack.push_back(right);
        stack.push_back(left);
      }
    }
  }

  std::vector<Frontier::Vertex> TakeVertices() { return std::move(vertices_); }
  std::vector<int32_t> TakeOrder() { return std::move(order_); }

 private:
  struct Part {
    int32_t begin = 0, end = 0;            // in order_
    int32_t arcs_begin = 0, arcs_end = 0;  // in arcs_: those with both ends in the part
    int64_t bytes_off = 0;                 // bytes saved by replaying the part, what lies before it being replayed
    double seconds_on = 0;
  };

  // Cuts a part at the given price of each node; reorders it so that the nodes inside come first, and returns both halves.
  template <typename Price>
  std::pair<Part, Part> Split(const Part& part, const Price& price, double tolerance) {
    surplus_.clear();
    for (int32_t p = part.begin; p < part.end; ++p) {
      const int32_t v = order_[p];
      local_[v] = p - part.begin;
      surplus_.push_back(supply_[v] - (demand_[v] + price(v)));
    }
    cut_arcs_.clear();
    for (int32_t a = part.arcs_begin; a < part.arcs_end; ++a) {
      const TapeGraph::Arc& arc = arcs_[a];
      cut_arcs_.push_back({local_[arc.from], local_[arc.to],
                           arc.bytes == TapeGraph::kInfiniteBytes ? kInfiniteCapacity : static_cast<double>(arc.bytes)});
    }
    const auto inside = min_cut_.Solve(surplus_, cut_arcs_, tolerance);
    Part left = part, right = part;
    const auto is_inside = [&](int32_t v) { return inside[local_[v]] != 0; };
    left.end = right.begin =
        std::stable_partition(order_.begin() + part.begin, order_.begin() + part.end, is_inside) - order_.begin();
    SplitArcs(is_inside, left, right);
    Weigh(left);
    Weigh(right);
    return {left, right};
  }

  // Arcs between the halves become demand of the left one and supply of the right one.
  template <typename IsInside>
  void SplitArcs(const IsInside& is_inside, Part& left, Part& right) {
    spare_arcs_.clear();
    int32_t end = left.arcs_begin;
    for (int32_t a = left.arcs_begin; a < left.arcs_end; ++a) {
      const TapeGraph::Arc arc = arcs_[a];
      const bool from = is_inside(arc.from), to = is_inside(arc.to);
      if (from && to) {
        arcs_[end++] = arc;
      } else if (!from && !to) {
        spare_arcs_.push_back(arc);
      } else if (from) {
        demand_[arc.from] += arc.bytes;
        supply_[arc.to] += arc.bytes;
      }
    }
    left.arcs_end = right.arcs_begin = end;
    std::copy(spare_arcs_.begin(), spare_arcs_.end(), arcs_.begin() + end);
    right.arcs_end = end + static_cast<int32_t>(spare_arcs_.size());
  }

  void Weigh(Part& part) const {
    part.bytes_off = 0;
    part.seconds_on = 0;
    for (int32_t p = part.begin; p < part.end; ++p) {
      const int32_t v = order_[p];
      part.bytes_off += supply_[v] - demand_[v];
      part.seconds_on += seconds_[v];
    }
  }

  std::vector<int64_t> supply_;
  std::vector<int64_t> demand_;
  const std::vector<double>& seconds_;
  std::vector<TapeGraph::Arc> arcs_;
  std::vector<int32_t> order_;
  std::vector<int32_t> local_;
  std::vector<double> surplus_;
  std::vector<CutArc> cut_arcs_;
  std::vector<TapeGraph::Arc> spare_arcs_;
  std::vector<Frontier::Vertex> vertices_;
  MinCut min_cut_;
};

}  // namespace

Frontier::Frontier(const TapeGraph& graph) {
  HullBuilder builder(graph);
  builder.Run();
  vertices_ = builder.TakeVertices();
  order_ = builder.TakeOrder();
}

Flags Frontier::Inside(int32_t vertex) const {
  Flags inside(order_.size(), false);
  for (int32_t p = 0; p < vertices_[vertex].inside; ++p) inside[order_[p]] = true;
  return inside;
}

std::vector<int32_t> SpreadOver(const std::vector<Frontier::Vertex>& vertices, int32_t first, int32_t last, int32_t count) {
  std::vector<int32_t> spread;
  const int64_t most = vertices[first].bytes, step = (most - vertices[last].bytes) / (count - 1);
  for (int32_t v = first; v <= last; ++v) {
    const int64_t due = most - step * static_cast<int64_t>(spread.size());
    if (last - first < count || vertices[v].bytes <= due || v == last) spread.push_back(v);
  }
  return spread;
}

}  // namespace tidetape::planner
