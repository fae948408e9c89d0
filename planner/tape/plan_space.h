// All plans of one tape, cut into regions: in each, some storages must be saved and some must not.
//
// A region knows what none of its plans goes below: the hull of its cuts (bytes and seconds), and the own peak that the decisions
// made so far force. Splitting a region on one more storage tightens both. The regions of a space have all plans of the tape
// together.
#ifndef TIDETAPE_PLANNER_TAPE_PLAN_SPACE_H_
#define TIDETAPE_PLANNER_TAPE_PLAN_SPACE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "planner/model/problem.h"
#include "planner/tape/tape_plans.h"

namespace tidetape::planner {

class PlanSpace {
 public:
  // One region, of all plans. Keeps references to both; `root` must be of `tape`.
  PlanSpace(const BlockTape& tape, TapePlans& root);
  PlanSpace(const PlanSpace&) = delete;
  PlanSpace& operator=(const PlanSpace&) = delete;

  // Numbers of the regions that have not been split, in no order.
  const std::vector<int32_t>& open() const { return open_; }
  TapePlans& plans(int32_t region) { return *regions_[region].plans; }
  const TapePlans& plans(int32_t region) const { return *regions_[region].plans; }

  // Every storage is decided, so that the region has one plan: that of its only vertex.
  bool Decided(int32_t region) const;

  // Splits an open region on the largest storage in which the corners of its hull around `bytes` differ. False where they differ in
  // none that is not decided: nothing changes.
  bool SplitBetweenCorners(int32_t region, int64_t bytes);
  // The same on the hull at a backward event (TapePlans::AtEvent).
  bool SplitBetweenCorners(int32_t region, size_t event, int64_t bytes);
  // Splits it on the storage whose decision as in the plan, one of the region's, raises most what all plans hold at a backward
  // event. False where none raises it.
  bool SplitOnHeld(int32_t region, size_t event, const TapePlan& plan);
  // Splits it on the largest storage that is not decided. False where there is none.
  bool SplitOnLargest(int32_t region);

 private:
  struct Region {
    BlockTape tape;  // with the decisions as must_save and must_recompute
    std::unique_ptr<TapePlans> owned;
    TapePlans* plans = nullptr;
  };

  int32_t LargestBetweenCorners(int32_t region, TapePlans& plans, int64_t bytes) const;
  bool SplitOn(int32_t region, int32_t storage);

  std::deque<Region> regions_;  // whose places do not change
  std::vector<int32_t> open_;
};

// The largest of the given storages that plans may save or not; -1 where there is none.
int32_t LargestUndecided(const BlockTape& tape, const std::vector<int32_t>& storages);

// Storages that some op writes, ascending.
std::vector<int32_t> MadeStorages(const TapeIndex& index);

// What a region costs to make and evaluate, in visits of an op.
int64_t VisitsARegion(const BlockTape& tape);

// Seconds that no plan with at most so many bytes stays below, by a hull as of TapePlans::bound(); infinite where there is none.
double BoundSeconds(const std::vector<HullPoint>& hull, int64_t bytes);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_TAPE_PLAN_SPACE_H_
