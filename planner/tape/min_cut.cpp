#include "planner/tape/min_cut.h"

#include <algorithm>

namespace tidetape::planner {

std::span<const char> MinCut::Solve(std::span<const double> surplus, std::span<const CutArc> arcs, double tolerance) {
  Build(surplus, arcs);
  while (ComputeDistances(tolerance)) {
    std::copy(first_.begin(), first_.begin() + nodes_, current_.begin());
    for (int32_t v = 0; v < nodes_; ++v) {
      if (surplus_[v] > tolerance && distance_[v] >= 0) Augment(v, tolerance);
    }
  }
  MarkSourceSide(tolerance);
  return {source_side_.data(), static_cast<size_t>(nodes_)};
}

void MinCut::Build(std::span<const double> surplus, std::span<const CutArc> arcs) {
  nodes_ = static_cast<int32_t>(surplus.size());
  if (first_.size() < surplus.size() + 1) {
    first_.resize(nodes_ + 1);
    distance_.resize(nodes_);
    current_.resize(nodes_);
    queue_.resize(nodes_);
    source_side_.resize(nodes_);
  }
  if (half_to_.size() < 2 * arcs.size()) {
    half_to_.resize(2 * arcs.size());
    half_twin_.resize(2 * arcs.size());
    residual_.resize(2 * arcs.size());
  }
  surplus_.assign(surplus.begin(), surplus.end());
  std::fill(first_.begin(), first_.begin() + nodes_ + 1, 0);
  for (const CutArc& arc : arcs) {
    ++first_[arc.from];
    ++first_[arc.to];
  }
  int32_t sum = 0;
  for (int32_t v = 0; v < nodes_; ++v) current_[v] = sum += first_[v];
  // current_ counts down from the end of each row to its begin.
  for (const CutArc& arc : arcs) {
    const int32_t forward = --current_[arc.from];
    const int32_t backward = --current_[arc.to];
    half_to_[forward] = arc.to;
    half_to_[backward] = arc.from;
    half_twin_[forward] = backward;
    half_twin_[backward] = forward;
    residual_[forward] = arc.capacity;
    residual_[backward] = 0;
  }
  std::copy(current_.begin(), current_.begin() + nodes_, first_.begin());
  first_[nodes_] = sum;
}

// Residual distances to the nearest node with demand left, as far as the nearest node with surplus. False: no path is left.
bool MinCut::ComputeDistances(double tolerance) {
  std::fill(distance_.begin(), distance_.begin() + nodes_, -1);
  int32_t tail = 0;
  for (int32_t v = 0; v < nodes_; ++v) {
    if (surplus_[v] < 0) {
      distance_[v] = 0;
      queue_[tail++] = v;
    }
  }
  int32_t limit = std::numeric_limits<int32_t>::max();
  for (int32_t head = 0; head < tail; ++head) {
    const int32_t v = queue_[head];
    if (distance_[v] >= limit) break;
    for (int32_t a = first_[v]; a < first_[v + 1]; ++a) {
      const int32_t u = half_to_[a];
      if (distance_[u] >= 0 || residual_[half_twin_[a]] <= 0) continue;
      distance_[u] = distance_[v] + 1;
      if (surplus_[u] > tolerance) limit = distance_[u];
      queue_[tail++] = u;
    }
  }
  return limit != std::numeric_limits<int32_t>::max();
}

// Pushes the node's surplus along shortest paths until it is gone or the node is a dead end of this phase.
void MinCut::Augment(int32_t start, double tolerance) {
  path_.clear();
  int32_t v = start;
  while (true) {
    if (distance_[v] == 0 && surplus_[v] < 0) {
      double flow = std::min(surplus_[start], -surplus_[v]);
      for (int32_t a : path_) flow = std::min(flow, residual_[a]);
      surplus_[v] += flow;
      surplus_[start] -= flow;
      size_t keep = path_.size();
      for (size_t i = path_.size(); i-- > 0;) {
        const int32_t a = path_[i];
        residual_[a] -= flow;
        residual_[half_twin_[a]] += flow;
        if (residual_[a] <= 0) keep = i;
      }
      if (!(surplus_[start] > tolerance)) return;
      if (keep < path_.size()) {
        v = half_to_[half_twin_[path_[keep]]];
        path_.resize(keep);
      }
      continue;
    }
    int32_t& a = current_[v];
    while (a < first_[v + 1] && !(residual_[a] > 0 && distance_[half_to_[a]] == distance_[v] - 1)) ++a;
    if (a < first_[v + 1] && distance_[v] > 0) {
      path_.push_back(a);
      v = half_to_[a];
    } else {
      distance_[v] = -1;
      if (path_.empty()) return;
      v = half_to_[half_twin_[path_.back()]];
      path_.pop_back();
      ++current_[v];
    }
  }
}

void MinCut::MarkSourceSide(double tolerance) {
  std::fill(source_side_.begin(), source_side_.begin() + nodes_, 0);
  int32_t tail = 0;
  for (int32_t v = 0; v < nodes_; ++v) {
    if (surplus_[v] > tolerance) {
      source_side_[v] = 1;
      queue_[tail++] = v;
    }
  }
  for (int32_t head = 0; head < tail; ++head) {
    const int32_t v = queue_[head];
    for (int32_t a = first_[v]; a < first_[v + 1]; ++a) {
      const int32_t u = half_to_[a];
      if (source_side_[u] || residual_[a] <= 0) continue;
      source_side_[u] = 1;
      queue_[tail++] = u;
    }
  }
}

}  // namespace tidetape::planner
