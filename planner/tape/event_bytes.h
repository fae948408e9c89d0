// What a tape's backward holds at its events under every plan that its marks (must_save, must_recompute) allow.
#ifndef TIDETAPE_PLANNER_TAPE_EVENT_BYTES_H_
#define TIDETAPE_PLANNER_TAPE_EVENT_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/model/problem.h"
#include "planner/tape/tape_index.h"

namespace tidetape::planner {

// What every plan holds at a backward event.
struct EventBytes {
  int64_t held = 0;    // consumed bytes that are there whatever the plan saves
  int64_t passed = 0;  // beside them there are the plan's saved bytes, less this
};

// By event; a tape without events has one.
std::vector<EventBytes> BytesUnderEveryPlan(const TapeIndex& index);

// By storage: at the event it is there under every plan.
Flags HeldAt(const TapeIndex& index, size_t event);

// Bytes under every plan at the event that saves the storage, or that does not save it.
int64_t BytesHeldAt(const TapeIndex& index, size_t event, int32_t storage, bool saved);

// The tape with no cost in bytes but for what is there at the event only where a plan saves it: the bytes that a plan saves on this
// tape and EventBytes::held are there together.
BlockTape TapeAtEvent(const TapeIndex& index, size_t event);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_TAPE_EVENT_BYTES_H_
