// A pacing that a data plane may be switched to.
#ifndef TIDETAPE_AGENT_FSDP_PACING_CANDIDATE_H_
#define TIDETAPE_AGENT_FSDP_PACING_CANDIDATE_H_

#include <cstdint>

#include "absl/time/time.h"
#include "collectives/schedule_options.h"
#include "collectives/stable_hash.h"
#include "collectives/transports/tcp/pacing.h"

namespace tidetape::agent {

struct PacingCandidate {
  int64_t generation = 0;                 // 0: that of the start
  collectives::ScheduleOptions schedule;  // the same on all ranks, or none of them switches
  collectives::Pacing network;            // what the own transport does between chunks

  // Of all that all ranks must have alike.
  uint64_t hash() const {
    collectives::StableHash hash;
    hash.Add(schedule.chunk_bytes);
    hash.Add(int64_t{schedule.puts_in_flight});
    hash.Add(absl::ToInt64Nanoseconds(schedule.gap));
    hash.Add(static_cast<int64_t>(schedule.rail));
    hash.Add(schedule.multicast_most_bytes);
    hash.Add(int64_t{schedule.staging_slots});
    return hash.value();
  }
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_FSDP_PACING_CANDIDATE_H_
