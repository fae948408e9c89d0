#include "collectives/validate_group.h"

#include <set>

#include "absl/strings/str_cat.h"

namespace tidetape::collectives {

absl::Status ValidateGroup(const Layout& layout, int32_t unit, const Group& group) {
  const int32_t units = static_cast<int32_t>(layout.units().size());
  if (unit < 0 || unit >= units) {
    return absl::InvalidArgumentError(absl::StrCat("no unit ", unit, ": the layout has ", units, " units"));
  }
  const MeshShape& mesh = layout.units()[unit].mesh;
  const auto invalid = [&](const auto&... parts) {
    return absl::InvalidArgumentError(
        absl::StrCat("unit '", layout.spec().units[unit].name, "', mesh '", mesh.name, "': ", parts...));
  };
  const int32_t shards = static_cast<int32_t>(group.shards.size()), replicas = static_cast<int32_t>(group.replicas.size());
  if (shards != mesh.shards) return invalid("the group has ", shards, " ranks, the mesh ", mesh.shards, " shards");
  if (group.per_node != mesh.per_node) return invalid("the group has ", group.per_node, " ranks a node, the mesh ", mesh.per_node);
  if (group.self < 0 || group.self >= shards) return invalid("the own position is ", group.self, " of ", shards);
  if (replicas != mesh.replicas && !(replicas == 0 && mesh.replicas == 1)) {
    return invalid("the group has ", replicas, " replicas, the mesh ", mesh.replicas);
  }
  if (replicas > 0 && (group.replica < 0 || group.replica >= replicas || group.replicas[group.replica] != group.rank())) {
    return invalid("rank ", group.rank(), " is not at position ", group.replica, " of the replicas");
  }
  std::set<int32_t> seen(group.shards.begin(), group.shards.end());
  for (int32_t i = 0; i < replicas; ++i) {
    if (i != group.replica) seen.insert(group.replicas[i]);
  }
  if (static_cast<int32_t>(seen.size()) != shards + (replicas > 0 ? replicas - 1 : 0)) return invalid("a rank appears twice");
  return absl::OkStatus();
}

}  // namespace tidetape::collectives
