#include "collectives/validate_layout.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tidetape::collectives {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 56;  // of the whole arena
constexpr int64_t kLeastSumsPerNode = 1024;       // elements: smaller rounds would be all latency

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// Names are printed and compared line by line.
bool Printable(const std::string& name) {
  return !name.empty() && std::none_of(name.begin(), name.end(), [](char c) { return absl::ascii_iscntrl(c); });
}

absl::Status CheckMesh(const MeshShape& mesh) {
  if (!Printable(mesh.name)) return Invalid("a mesh has a name that is empty or has control characters");
  if (mesh.shards < 1 || mesh.replicas < 1 || mesh.per_node < 1) {
    return Invalid("mesh '", mesh.name, "': shards, replicas and per_node are ", mesh.shards, ", ", mesh.replicas, " and ",
                   mesh.per_node, ", must be at least 1");
  }
  if (mesh.shards % mesh.per_node != 0) {
    return Invalid("mesh '", mesh.name, "': per_node is ", mesh.per_node, ", must divide its ", mesh.shards,
                   " shards; use 1 where nodes hold different numbers of them");
  }
  return absl::OkStatus();
}

absl::Status CheckParameter(const Unit& unit, size_t p, const MeshShape& mesh, int64_t& sum) {
  const Parameter& parameter = unit.parameters[p];
  if (!Printable(parameter.name)) {
    return Invalid("unit '", unit.name, "', parameter ", p, ": its name is empty or has control characters");
  }
  const std::string where = absl::StrCat("unit '", unit.name, "', parameter '", parameter.name, "'");
  const auto same_name = [&](const Parameter& other) { return other.name == parameter.name; };
  if (std::any_of(unit.parameters.begin(), unit.parameters.begin() + p, same_name)) return Invalid(where, ": appears twice");
  if (parameter.shape.empty()) {
    return Invalid(where, ": has no dimensions; FSDP2 does not shard scalars, make it a 1-dimensional tensor");
  }
  int64_t elements = 1;
  for (int64_t size : parameter.shape) {
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements) || elements > kMostBytes) {
      return Invalid(where, ": shape [", absl::StrJoin(parameter.shape, ", "), "] is negative or too large");
    }
  }
  const int32_t dimensions = static_cast<int32_t>(parameter.shape.size());
  if (parameter.shard_dim < 0 || parameter.shard_dim >= dimensions) {
    return Invalid(where, ": shard_dim is ", parameter.shard_dim, ", but it has ", dimensions, " dimensions");
  }
  const int64_t sharded = parameter.shape[parameter.shard_dim];
  if (parameter.shard_dim != 0 && sharded % mesh.shards != 0) {
    return Invalid(where, ": FSDP2 does not support uneven sharding on dim ", parameter.shard_dim, ": size ", sharded, " over ",
                   mesh.shards, " ranks");
  }
  // Padding adds less than one row a rank.
  const int64_t rows = sharded + (parameter.shard_dim == 0 ? mesh.shards : 0);
  int64_t bytes = 0;
  if (__builtin_mul_overflow(sharded == 0 ? 0 : elements / sharded, rows, &bytes) || bytes > kMostBytes / 16 ||
      (sum += bytes * DTypeBytes(parameter.dtype) + 4096) > kMostBytes) {
    return Invalid(where, ": the unit's parameters exceed 2^56 bytes here");
  }
  if (parameter.shared_with.empty()) return absl::OkStatus();
  const auto owner = std::find_if(unit.parameters.begin(), unit.parameters.begin() + p,
                                  [&](const Parameter& other) { return other.name == parameter.shared_with; });
  if (owner == unit.parameters.begin() + p) {
    return Invalid(where, ": shared_with is '", parameter.shared_with, "', which is no earlier parameter of the unit");
  }
  if (!owner->shared_with.empty()) {
    return Invalid(where, ": shared_with is '", parameter.shared_with, "', which is itself shared; name '", owner->shared_with,
                   "'");
  }
  if (owner->shape != parameter.shape || owner->dtype != parameter.dtype || owner->shard_dim != parameter.shard_dim) {
    return Invalid(where, ": shared_with is '", parameter.shared_with, "', which has another shape, dtype or shard_dim");
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const LayoutSpec& spec) {
  const LayoutOptions& options = spec.options;
  if (options.rotating_slots < 1) return Invalid("rotating_slots is ", options.rotating_slots, ", must be at least 1");
  if (options.host_ranks < 0) return Invalid("host_ranks is ", options.host_ranks, ", must not be negative");
  if (options.staging_bytes < 4096 || options.staging_bytes > kMostBytes) {
    return Invalid("staging_bytes is ", options.staging_bytes, ", must be at least 4096");
  }
  if (options.accumulator_bytes < 0 || options.accumulator_bytes > kMostBytes) {
    return Invalid("accumulator_bytes is ", options.accumulator_bytes, ", must not be negative");
  }
  for (const MeshShape& mesh : spec.meshes) {
    const int64_t least = int64_t{4} * kLeastSumsPerNode * (mesh.shards / mesh.per_node);
    if (options.accumulator_bytes < least) {
      return Invalid("accumulator_bytes is ", options.accumulator_bytes, "; mesh '", mesh.name, "' has ",
                     mesh.shards / mesh.per_node, " nodes and needs at least ", least);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateLayoutSpec(const LayoutSpec& spec) {
  for (size_t m = 0; m < spec.meshes.size(); ++m) {
    if (absl::Status status = CheckMesh(spec.meshes[m]); !status.ok()) return status;
    for (size_t other = 0; other < m; ++other) {
      if (spec.meshes[other].name == spec.meshes[m].name) return Invalid("mesh '", spec.meshes[m].name, "' appears twice");
    }
  }
  if (absl::Status status = CheckOptions(spec); !status.ok()) return status;
  int64_t sum = 0;
  for (size_t u = 0; u < spec.units.size(); ++u) {
    const Unit& unit = spec.units[u];
    if (!Printable(unit.name)) return Invalid("unit ", u, ": its name is empty or has control characters");
    const auto same_name = [&](const Unit& other) { return other.name == unit.name; };
    if (std::any_of(spec.units.begin(), spec.units.begin() + u, same_name)) return Invalid("unit '", unit.name, "' appears twice");
    const auto mesh = std::find_if(spec.meshes.begin(), spec.meshes.end(), [&](const MeshShape& m) { return m.name == unit.mesh; });
    if (mesh == spec.meshes.end())
      return Invalid("unit '", unit.name, "': mesh is '", unit.mesh, "', which is not among the meshes");
    for (size_t p = 0; p < unit.parameters.size(); ++p) {
      if (absl::Status status = CheckParameter(unit, p, *mesh, sum); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace tidetape::collectives
