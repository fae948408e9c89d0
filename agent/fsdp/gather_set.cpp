#include "agent/fsdp/gather_set.h"

#include <algorithm>
#include <utility>

namespace tidetape::agent {
namespace {

using collectives::Layout;
using collectives::Schedule;
using collectives::Step;
using collectives::StepKind;

bool EveryRankHasAShard(const Layout& layout, int32_t unit) {
  const auto& parameters = layout.units()[unit].parameters;
  for (int32_t g = 0; g < layout.units()[unit].mesh.shards; ++g) {
    const bool has = std::any_of(parameters.begin(), parameters.end(),
                                 [g](const auto& place) { return place.geometry.piece_elements(g) * place.geometry.outer > 0; });
    if (!has) return false;
  }
  return true;
}

// Whether the same ranks write into the slot whichever of its units is next. By what is the same on all ranks: what one says early,
// the others must know that it has said.
bool SameWriters(const Layout& layout, int32_t slot) {
  std::vector<int32_t> units;
  for (int32_t unit = 0; unit < static_cast<int32_t>(layout.units().size()); ++unit) {
    if (layout.units()[unit].slot == slot) units.push_back(unit);
  }
  if (units.size() == 1) return true;
  return std::all_of(units.begin(), units.end(), [&](int32_t unit) {
    return layout.spec().units[unit].mesh == layout.spec().units[units[0]].mesh && EveryRankHasAShard(layout, unit);
  });
}

Gather MakeGather(Schedule schedule, const Layout& layout, int32_t unit, int64_t generation) {
  Gather gather;
  gather.schedule = std::move(schedule);
  gather.generation = generation;
  gather.slot = layout.units()[unit].slot;
  gather.ready_early = SameWriters(layout, gather.slot);
  if (gather.schedule.phases.size() == 3) {
    gather.admit_phase = 1;
    gather.admitted = gather.schedule.begin(1);
    while (gather.admitted < gather.schedule.end(1) && gather.schedule.steps[gather.admitted].kind == StepKind::kWait) {
      ++gather.admitted;
    }
  }
  const int32_t last = gather.last_phase(), data = layout.GatherSignal(gather.slot);
  gather.sent = gather.schedule.begin(last);
  while (gather.sent < gather.schedule.end(last)) {
    const Step& step = gather.schedule.steps[gather.sent];
    if (step.kind == StepKind::kWait && step.signal == data) break;
    ++gather.sent;
  }
  for (const Step& step : gather.schedule.steps) gather.network_bytes += step.paced ? step.bytes : 0;
  for (const auto& parameter : layout.spec().units[unit].parameters) {
    int64_t bytes = collectives::DTypeBytes(parameter.dtype);
    for (const int64_t extent : parameter.shape) bytes *= extent;
    if (parameter.shared_with.empty()) gather.gathered_bytes += bytes;
  }
  return gather;
}

}  // namespace

absl::StatusOr<GatherSet> MakeGathers(const Layout& layout, const ScheduleMaker& maker, const collectives::ScheduleOptions& options,
                                      int64_t generation, std::vector<ScheduleMaker::Hashes>* proved) {
  const int32_t units = static_cast<int32_t>(layout.units().size());
  if (proved != nullptr) proved->assign(units, {});
  GatherSet gathers;
  for (int32_t unit = 0; unit < units; ++unit) {
    auto schedule =
        maker.Make(collectives::CollectiveKind::kAllGather, unit, options, proved != nullptr ? &(*proved)[unit] : nullptr);
    if (!schedule.ok()) return schedule.status();
    gathers.push_back(std::make_shared<const Gather>(MakeGather(*std::move(schedule), layout, unit, generation)));
  }
  return gathers;
}

}  // namespace tidetape::agent
