// The all-gathers of all units under one pacing. Made by a ScheduleMaker, so in debug mode each was proved.
#ifndef TIDETAPE_AGENT_FSDP_GATHER_SET_H_
#define TIDETAPE_AGENT_FSDP_GATHER_SET_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/fsdp/schedule_maker.h"
#include "collectives/layout.h"
#include "collectives/schedule.h"
#include "collectives/schedule_options.h"

namespace tidetape::agent {

struct Gather {
  collectives::Schedule schedule;
  int64_t generation = 0;    // of the pacing that it was made for
  int32_t slot = 0;          // that the unit is gathered into
  int32_t admit_phase = -1;  // -1 where the slot is the rank's own
  int32_t admitted = 0;      // steps of that phase from here on tell other hosts that the slot is free
  int32_t sent = 0;          // steps of the last phase up to here do not wait for shards
  bool ready_early = false;  // the slot has the same writers whichever unit is next, so it can be said that it is free at once
  int64_t network_bytes = 0;
  int64_t gathered_bytes = 0;  // of the unit, padding left out

  int32_t last_phase() const { return static_cast<int32_t>(schedule.phases.size()) - 1; }
};

// By unit. Gathers that are under way keep theirs when others take their place.
using GatherSet = std::vector<std::shared_ptr<const Gather>>;

// Errors as of ScheduleMaker::Make. `maker` has this layout. `proved`, where given, gets the hashes of what was proved, by unit.
absl::StatusOr<GatherSet> MakeGathers(const collectives::Layout& layout, const ScheduleMaker& maker,
                                      const collectives::ScheduleOptions& options, int64_t generation,
                                      std::vector<ScheduleMaker::Hashes>* proved = nullptr);

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_FSDP_GATHER_SET_H_
