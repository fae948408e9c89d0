// The minimum-cut graph of a tape: inside the cut = replayed.
//
// Nodes are the ops that can matter for the consumed storages, and a node for each storage that backward does not consume and that
// several of these ops read. For a trade-off of mu bytes a second, the cut's value is the bytes that are saved plus mu times the
// seconds that are replayed:
//   supply of an op     bytes of the consumed storages whose last writer it is (saved where the op is not replayed)
//   demand of an op     mu * cost_seconds
//   reader -> writer    bytes of the storage between them (through the storage's node where several ops read it)
//   infinite arcs       reader -> writer for storages that no plan saves, for overwritten versions, and from each writer of a
//   storage
//                       to the previous one
// Parameters, block inputs and must-save storages need nothing; the bytes of the latter are a constant. Several outputs of an op
// are exact, since each storage has its own bytes on the op's supply or arcs.
//
// Storages with several writers (in place, slices). Only the last version can be saved, and a plan that saves it must not replay
// any of its writers or readers of earlier versions (FindReplaySet says why). "Not saved" is forced by an infinite arc from each
// such op to the last writer. For a consumed storage this is exact. For one that is not consumed it is exact as long as only its
// own writers stand on its earlier versions, or every plan replays an op that does. Elsewhere a plan that replays such an op pays
// for the last version even if nobody needs it: the cut may then miss a cheaper plan, but each of its plans is valid and costs at
// most what the cut says. exact() is false for such a tape, and a graph with Rewritten::kRelaxed, which drops these arcs, gives a
// bound that no plan beats.
#ifndef TIDETAPE_PLANNER_TAPE_TAPE_GRAPH_H_
#define TIDETAPE_PLANNER_TAPE_TAPE_GRAPH_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/tape/tape_index.h"

namespace tidetape::planner {

enum class Rewritten { kConservative, kRelaxed };

class TapeGraph {
 public:
  struct Arc {
    int32_t from = 0;
    int32_t to = 0;
    int64_t bytes = 0;  // kInfiniteBytes: an implication
  };
  static constexpr int64_t kInfiniteBytes = INT64_MAX;

  // InvalidArgument where no plan exists: names a consumed storage and the op that its replay would need.
  static absl::StatusOr<TapeGraph> Build(const TapeIndex& index, Rewritten rewritten = Rewritten::kConservative);

  // Undecided nodes only: what every plan replays, and what none can, is contracted away.
  int32_t nodes() const { return static_cast<int32_t>(supply_bytes_.size()); }
  const std::vector<int64_t>& supply_bytes() const { return supply_bytes_; }     // saved if the node is outside
  const std::vector<int64_t>& demand_bytes() const { return demand_bytes_; }     // saved if the node is inside
  const std::vector<double>& demand_seconds() const { return demand_seconds_; }  // replayed if the node is inside
  const std::vector<Arc>& arcs() const { return arcs_; }
  int64_t fixed_bytes() const { return fixed_bytes_; }
  double fixed_seconds() const { return fixed_seconds_; }
  bool exact() const { return exact_; }

  // Storages that are saved where exactly the given nodes are inside, ascending.
  std::vector<int32_t> SavedStorages(const TapeIndex& index, const Flags& inside) const;

 private:
  class Builder;

  std::vector<int64_t> supply_bytes_;
  std::vector<int64_t> demand_bytes_;
  std::vector<double> demand_seconds_;
  std::vector<Arc> arcs_;
  std::vector<int32_t> op_nodes_;  // by op: its node, or kReplayed or kNotReplayed
  int64_t fixed_bytes_ = 0;
  double fixed_seconds_ = 0;
  bool exact_ = true;
};

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_TAPE_TAPE_GRAPH_H_
