// Minimum cut by Dinic's algorithm, with the terminals folded into the nodes.
//
// Notation: a cut is a set S of nodes. Its value is the sum of supply over nodes outside S, of demand over nodes inside S, and of
// capacity over arcs from inside to outside. Supply and demand of a node are arcs from a source and to a sink that are not
// written down; only their difference matters for the smallest S. An arc of infinite capacity is the implication
// "from inside => to inside".
//
// Dinic, "Algorithm for solution of a problem of maximum flow in networks with power estimation" (1970). Distances are taken to
// the sink, so that a search only enters nodes that can reach it. Memory: about 40 bytes an arc and 50 a node, kept between cuts.
#ifndef TIDETAPE_PLANNER_TAPE_MIN_CUT_H_
#define TIDETAPE_PLANNER_TAPE_MIN_CUT_H_

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tidetape::planner {

inline constexpr double kInfiniteCapacity = std::numeric_limits<double>::infinity();

struct CutArc {
  int32_t from = 0;
  int32_t to = 0;
  double capacity = 0;
};

// Keeps its memory from one cut to the next. Not safe for use from several threads at once.
class MinCut {
 public:
  // The smallest of the sets of least value, as a flag a node; valid until the next call. surplus[v] = supply - demand. A surplus
  // of at most `tolerance` that is left at the end counts as none: rounding must not pull nodes into the set. At least one
  // finite cut must exist (no chain of infinite arcs from infinite surplus to infinite demand).
  std::span<const char> Solve(std::span<const double> surplus, std::span<const CutArc> arcs, double tolerance);

 private:
  void Build(std::span<const double> surplus, std::span<const CutArc> arcs);
  bool ComputeDistances(double tolerance);
  void Augment(int32_t start, double tolerance);
  void MarkSourceSide(double tolerance);

  int32_t nodes_ = 0;
  std::vector<double> surplus_;
  std::vector<int32_t> first_;    // by node: its half arcs in half_, one more than nodes
  std::vector<int32_t> half_to_;  // half arcs by node: arc and its reverse are two of them
  std::vector<int32_t> half_twin_;
  std::vector<double> residual_;
  std::vector<int32_t> distance_;
  std::vector<int32_t> current_;
  std::vector<int32_t> queue_;
  std::vector<int32_t> path_;  // half arcs
  std::vector<char> source_side_;
};

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_TAPE_MIN_CUT_H_
