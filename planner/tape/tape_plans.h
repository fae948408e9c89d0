// The plans of one tape that the step chooses from, each computed once.
#ifndef TIDETAPE_PLANNER_TAPE_TAPE_PLANS_H_
#define TIDETAPE_PLANNER_TAPE_TAPE_PLANS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/model/problem.h"
#include "planner/tape/event_bytes.h"
#include "planner/tape/frontier.h"
#include "planner/tape/replay_set.h"
#include "planner/tape/replay_simulation.h"
#include "planner/tape/tape_graph.h"
#include "planner/tape/tape_index.h"

namespace tidetape::planner {

// A plan of a tape with all that it costs.
struct TapePlan {
  std::vector<int32_t> saved;     // storages, ascending
  std::vector<int32_t> replayed;  // ops, ascending
  int64_t saved_bytes = 0;
  double replay_seconds = 0;
  ReplayProfile profile;
};

// A corner of the convex function "least seconds against saved bytes".
struct HullPoint {
  int64_t bytes = 0;
  double seconds = 0;
  int32_t vertex = -1;  // of a tape's frontier, where it is one
};

// What the own peaks of all plans of a tape lie between, for one instance of it.
struct OwnPeakRange {
  int64_t least_bytes = 0;     // no plan stays below
  size_t least_event = 0;      // where they are: beside them, what a plan saves on TapeAtEvent
  int64_t most_bytes = 0;      // no plan exceeds
  int64_t standing_bytes = 0;  // no plan stays below these and its saved bytes together
};

// Evaluates a plan. Errors are those of FindReplaySet.
absl::StatusOr<TapePlan> EvaluateTapePlan(const TapeIndex& index, const std::vector<int32_t>& saved);

// Points on or above no line between others, by falling bytes and rising seconds; the input is in any order.
std::vector<HullPoint> LowerHull(std::vector<HullPoint> points);

// The hull of a tape, with its vertices evaluated at their first use. Keeps a reference to the tape, which must be valid. Not safe
// for use from several threads at once.
class TapePlans {
 public:
  // InvalidArgument where the tape has no plan at all.
  static absl::StatusOr<std::unique_ptr<TapePlans>> Create(const BlockTape& tape);
  TapePlans(const TapePlans&) = delete;
  TapePlans& operator=(const TapePlans&) = delete;

  const TapeIndex& index() const { return index_; }
  // Vertices by falling bytes and rising seconds, as the cut sees them.
  const std::vector<Frontier::Vertex>& vertices() const { return frontier_.vertices(); }
  // A bound on all plans: no plan lies below the lines between these points, nor has fewer bytes than the last.
  const std::vector<HullPoint>& bound() const { return bound_; }
  // The plans of TapeAtEvent.
  TapePlans& AtEvent(size_t event);
  // The plans at the vertices cost what the cut says, not less.
  bool exact() const { return graph_.exact(); }
  // By event.
  const std::vector<EventBytes>& event_bytes() const { return event_bytes_; }
  OwnPeakRange RangeOfOwnPeaks(const BlockInstance& instance) const;

  const TapePlan& AtVertex(int32_t vertex);
  // Saves everything that backward reads, where the tape allows it, so that the less it replays the better.
  const TapePlan& KeepAll();

  // Searches plans off the hull with a low own peak for `instance`: from the fewest bytes on, the storage whose saving lowers the
  // peak most for its bytes; and the hull's leanest plan without what does not lower its peak. The search visits about `visits` ops
  // at most, and takes what it visited off them.
  void SearchLeanPlans(const BlockInstance& instance, int64_t& visits);
  // What all searches found, in their order.
  const std::vector<TapePlan>& lean_plans() const { return lean_; }

 private:
  TapePlans(const BlockTape& tape, TapeIndex index, TapeGraph graph);

  const TapeIndex index_;
  const TapeGraph graph_;
  const Frontier frontier_;
  std::vector<HullPoint> bound_;
  struct EventPlans {
    BlockTape tape;
    std::unique_ptr<TapePlans> plans;
  };
  std::map<size_t, EventPlans> at_event_;
  std::vector<EventBytes> event_bytes_;
  std::vector<std::unique_ptr<TapePlan>> at_vertex_;
  std::unique_ptr<TapePlan> keep_all_;
  std::vector<TapePlan> lean_;
};

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_TAPE_TAPE_PLANS_H_
