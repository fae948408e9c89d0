// The whole lower hull of one tape: replay seconds against saved bytes, over all plans.
//
// The trade-off sits on the demands only, so the sets of replayed ops are nested: with a falling price of time they only grow
// (Gallo, Grigoriadis and Tarjan, "A fast parametric maximum flow algorithm and applications", 1989). Divide and conquer after
// Eisner and Severance (1976): a segment between two hull points is tried at the trade-off at which both cost the same; the cut
// either shows that nothing lies below the segment, or gives a new hull point between them. Whatever both ends agree on is
// contracted, so that each level of the recursion works on disjoint parts of the graph.
#ifndef TIDETAPE_PLANNER_TAPE_FRONTIER_H_
#define TIDETAPE_PLANNER_TAPE_FRONTIER_H_

#include <cstdint>
#include <vector>

#include "planner/tape/tape_graph.h"

namespace tidetape::planner {

// Vertices of the hull, by falling bytes and rising seconds: from the least time (and the least bytes that allow it) to the least
// bytes (and the least time that they allow). Vertices that lie below a segment by less than 1e-12 of its bytes are left out.
class Frontier {
 public:
  struct Vertex {
    int64_t bytes = 0;
    double seconds = 0;
    int32_t inside = 0;  // this many first nodes of the order are replayed
  };

  explicit Frontier(const TapeGraph& graph);

  const std::vector<Vertex>& vertices() const { return vertices_; }
  // By node of the graph: replayed at the vertex.
  Flags Inside(int32_t vertex) const;

 private:
  std::vector<Vertex> vertices_;
  std::vector<int32_t> order_;  // nodes by when they enter the replay
};

// About `count` (at least 2) of the vertices from `first` to `last` at even distances of bytes, both ends among them.
std::vector<int32_t> SpreadOver(const std::vector<Frontier::Vertex>& vertices, int32_t first, int32_t last, int32_t count);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_TAPE_FRONTIER_H_
