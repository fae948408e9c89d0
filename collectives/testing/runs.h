// Collectives on all ranks of a mesh, for tests.
#ifndef TIDETAPE_COLLECTIVES_TESTING_RUNS_H_
#define TIDETAPE_COLLECTIVES_TESTING_RUNS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/all_gather_schedule.h"
#include "collectives/reduce_scatter_schedule.h"
#include "collectives/verifier/schedule_verifier.h"

namespace tidetape::collectives {

// Groups of all ranks of the mesh: rank = copy * shards + position.
inline std::vector<Group> GroupsOf(const MeshShape& mesh) {
  std::vector<Group> groups;
  for (int32_t rank = 0; rank < mesh.shards * mesh.replicas; ++rank) {
    Group group;
    group.per_node = mesh.per_node;
    group.self = rank % mesh.shards;
    group.replica = rank / mesh.shards;
    for (int32_t g = 0; g < mesh.shards; ++g) group.shards.push_back(group.replica * mesh.shards + g);
    for (int32_t copy = 0; copy < mesh.replicas; ++copy) group.replicas.push_back(copy * mesh.shards + group.self);
    groups.push_back(group);
  }
  return groups;
}

inline absl::StatusOr<CollectiveRun> MakeRun(const Layout& layout, CollectiveKind kind, int32_t unit,
                                             const ScheduleOptions& options) {
  CollectiveRun run;
  run.kind = kind;
  run.unit = unit;
  run.groups = GroupsOf(layout.units()[unit].mesh);
  run.gradient_dtype = options.gradient_dtype;
  for (const Group& group : run.groups) {
    auto schedule = kind == CollectiveKind::kAllGather ? AllGatherSchedule(layout, unit, group, options)
                                                       : ReduceScatterSchedule(layout, unit, group, options);
    if (!schedule.ok()) return schedule.status();
    run.schedules.push_back(*std::move(schedule));
  }
  return run;
}

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TESTING_RUNS_H_
