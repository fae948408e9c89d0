#include "agent/fsdp/schedule_maker.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/all_gather_schedule.h"
#include "collectives/reduce_scatter_schedule.h"

namespace tidetape::agent {

using collectives::CollectiveKind;
using collectives::CollectiveRun;
using collectives::Group;
using collectives::Schedule;
using collectives::ScheduleOptions;

absl::StatusOr<Schedule> ScheduleMaker::Make(CollectiveKind kind, int32_t unit, const ScheduleOptions& options,
                                             Hashes* hashes) const {
  const auto make = [&](const Group& group) {
    return kind == CollectiveKind::kAllGather ? collectives::AllGatherSchedule(layout_, unit, group, options)
                                              : collectives::ReduceScatterSchedule(layout_, unit, group, options);
  };
  if (!proves()) return make(own_[unit]);
  CollectiveRun run{kind, unit, everybody_[unit], {}, options.gradient_dtype};
  size_t own = run.groups.size();
  for (size_t i = 0; i < run.groups.size(); ++i) {
    auto schedule = make(run.groups[i]);
    if (!schedule.ok()) return schedule.status();
    if (schedule->rank == own_[unit].rank()) own = i;
    if (hashes != nullptr) hashes->emplace(schedule->rank, schedule->hash());
    run.schedules.push_back(*std::move(schedule));
  }
  if (own == run.groups.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the own rank is not in the mesh of unit '", layout_.spec().units[unit].name, "'"));
  }
  if (run.schedules[own].steps.empty()) return std::move(run.schedules[own]);  // all is frozen
  if (absl::Status status = collectives::VerifyCollective(layout_, run); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat("schedules are not sound: ", status.message()));
  }
  return std::move(run.schedules[own]);
}

}  // namespace tidetape::agent
