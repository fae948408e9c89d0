// The order of a step's forwards and backwards, where it is not the usual one: pipelines have several micro-batches alive at once.
#ifndef TIDETAPE_AGENT_SESSION_SCHEDULE_H_
#define TIDETAPE_AGENT_SESSION_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tidetape::agent {

// `order` is StepMemory's, of so many executions. In the words of tt_step_report: p + 1 where position p runs forward, -(p + 1)
// where it runs backward, 0 for the head, which runs between a forward and a backward. Empty for the usual order, in which all run
// forward and then backward in the opposite order; and where not every position runs forward once and then backward once, as under
// gradient accumulation.
std::vector<int32_t> ScheduleOf(const std::vector<int32_t>& order, size_t executions);

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_SESSION_SCHEDULE_H_
