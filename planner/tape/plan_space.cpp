#include "planner/tape/plan_space.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace tidetape::planner {

namespace {

bool Undecided(const Storage& storage) {
  return storage.kind == StorageKind::kIntermediate && !storage.must_save && !storage.must_recompute;
}

}  // namespace

int32_t LargestUndecided(const BlockTape& tape, const std::vector<int32_t>& storages) {
  int32_t largest = -1;
  for (int32_t s : storages) {
    if (!Undecided(tape.storages[s])) continue;
    if (largest < 0 || tape.storages[s].bytes > tape.storages[largest].bytes) largest = s;
  }
  return largest;
}

std::vector<int32_t> MadeStorages(const TapeIndex& index) {
  std::vector<int32_t> made;
  for (size_t s = 0; s < index.tape().storages.size(); ++s) {
    if (index.last_writer(static_cast<int32_t>(s)) >= 0) made.push_back(static_cast<int32_t>(s));
  }
  return made;
}

int64_t VisitsARegion(const BlockTape& tape) { return 12 * static_cast<int64_t>(tape.ops.size()) + 200; }

double BoundSeconds(const std::vector<HullPoint>& hull, int64_t bytes) {
  if (bytes < hull.back().bytes) return std::numeric_limits<double>::infinity();
  const auto lean = std::partition_point(hull.begin(), hull.end(), [&](const HullPoint& point) { return point.bytes > bytes; });
  if (lean == hull.begin()) return lean->seconds;
  const HullPoint &from = *std::prev(lean), &to = *lean;
  return to.seconds +
         (from.seconds - to.seconds) * static_cast<double>(bytes - to.bytes) / static_cast<double>(from.bytes - to.bytes);
}

PlanSpace::PlanSpace(const BlockTape& tape, TapePlans& root) {
  Region region;
  region.tape = tape;
  region.plans = &root;
  regions_.push_back(std::move(region));
  open_.push_back(0);
}

bool PlanSpace::SplitBetweenCorners(int32_t number, int64_t bytes) {
  return SplitOn(number, LargestBetweenCorners(number, *regions_[number].plans, bytes));
}

bool PlanSpace::SplitBetweenCorners(int32_t number, size_t event, int64_t bytes) {
  return SplitOn(number, LargestBetweenCorners(number, regions_[number].plans->AtEvent(event), bytes));
}

int32_t PlanSpace::LargestBetweenCorners(int32_t number, TapePlans& plans, int64_t bytes) const {
  const std::vector<Frontier::Vertex>& vertices = plans.vertices();
  const auto lean =
      std::partition_point(vertices.begin(), vertices.end(), [&](const Frontier::Vertex& vertex) { return vertex.bytes > bytes; });
  const auto at = static_cast<int32_t>(std::min<ptrdiff_t>(lean - vertices.begin(), static_cast<ptrdiff_t>(vertices.size()) - 1));
  const std::vector<int32_t>& few = plans.AtVertex(at).saved;
  const std::vector<int32_t>& many = plans.AtVertex(std::max(0, at - 1)).saved;
  std::vector<int32_t> differing;
  std::set_symmetric_difference(few.begin(), few.end(), many.begin(), many.end(), std::back_inserter(differing));
  return LargestUndecided(regions_[number].tape, differing);
}

bool PlanSpace::Decided(int32_t number) const {
  return LargestUndecided(regions_[number].tape, MadeStorages(regions_[number].plans->index())) < 0;
}

bool PlanSpace::SplitOnLargest(int32_t number) {
  return SplitOn(number, LargestUndecided(regions_[number].tape, MadeStorages(regions_[number].plans->index())));
}

bool PlanSpace::SplitOnHeld(int32_t number, size_t event, const TapePlan& plan) {
  const TapePlans& plans = *regions_[number].plans;
  const TapeIndex& index = plans.index();
  const Flags held = HeldAt(index, event);
  const int64_t before = plans.event_bytes()[event].held;
  int32_t chosen = -1;
  int64_t most = before;
  for (int32_t s : MadeStorages(index)) {
    if (!Undecided(index.tape().storages[s])) continue;
    const bool saved = std::binary_search(plan.saved.begin(), plan.saved.end(), s);
    // What is held already holds more only where it must be made from something.
    if (index.consumed(s) && saved == static_cast<bool>(held[s])) continue;
    const int64_t bytes = BytesHeldAt(index, event, s, saved);
    if (bytes <= most) continue;
    most = bytes;
    chosen = s;
  }
  return SplitOn(number, chosen);
}

bool PlanSpace::SplitOn(int32_t number, int32_t storage) {
  if (storage < 0) return false;
  open_.erase(std::find(open_.begin(), open_.end(), number));
  for (const bool save : {true, false}) {
    Region half;
    half.tape = regions_[number].tape;
    (save ? half.tape.storages[storage].must_save : half.tape.storages[storage].must_recompute) = true;
    // The plans refer to the tape in its final place.
    regions_.push_back(std::move(half));
    Region& placed = regions_.back();
    auto plans = TapePlans::Create(placed.tape);
    if (!plans.ok()) {  // the other half has all plans
      regions_.pop_back();
      continue;
    }
    placed.owned = *std::move(plans);
    placed.plans = placed.owned.get();
    open_.push_back(static_cast<int32_t>(regions_.size()) - 1);
  }
  return true;
}

}  // namespace tidetape::planner
