#include "collectives/layout.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/stable_hash.h"
#include "collectives/validate_layout.h"

namespace tidetape::collectives {
namespace {

int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

const MeshShape& MeshNamed(const LayoutSpec& spec, const std::string& name) {
  return *std::find_if(spec.meshes.begin(), spec.meshes.end(), [&](const MeshShape& mesh) { return mesh.name == name; });
}

// Positions of the unit's parameters, grouped by dtype.
std::vector<int32_t> PlacingOrder(const Unit& unit) {
  std::vector<DType> dtypes;
  for (const Parameter& parameter : unit.parameters) {
    if (std::find(dtypes.begin(), dtypes.end(), parameter.dtype) == dtypes.end()) dtypes.push_back(parameter.dtype);
  }
  std::vector<int32_t> order;
  for (DType dtype : dtypes) {
    for (size_t p = 0; p < unit.parameters.size(); ++p) {
      if (unit.parameters[p].dtype == dtype) order.push_back(static_cast<int32_t>(p));
    }
  }
  return order;
}

// Offsets within the slot.
UnitPlace PlaceUnit(const Unit& unit, const MeshShape& mesh) {
  UnitPlace place;
  place.mesh = mesh;
  place.parameters.resize(unit.parameters.size());
  for (int32_t p : PlacingOrder(unit)) {
    const Parameter& parameter = unit.parameters[p];
    ParameterPlace& own = place.parameters[p];
    own.geometry = ShardGeometry::Of(parameter.shape, parameter.shard_dim, mesh.shards);
    own.bytes = own.geometry.storage_elements() * DTypeBytes(parameter.dtype);
    own.storage_of = p;
    if (!parameter.shared_with.empty()) continue;
    own.offset = RoundUp(place.bytes, kParameterAlignment);
    place.bytes = own.offset + own.bytes;
  }
  for (size_t p = 0; p < unit.parameters.size(); ++p) {
    const std::string& owner = unit.parameters[p].shared_with;
    if (owner.empty()) continue;
    const auto found = std::find_if(unit.parameters.begin(), unit.parameters.end(),
                                    [&](const Parameter& parameter) { return parameter.name == owner; });
    place.parameters[p].storage_of = static_cast<int32_t>(found - unit.parameters.begin());
    place.parameters[p].offset = place.parameters[place.parameters[p].storage_of].offset;
  }
  for (int32_t g = 0; g < mesh.shards; ++g) {
    int64_t elements = 0;
    for (size_t p = 0; p < unit.parameters.size(); ++p) {
      if (unit.parameters[p].frozen || place.parameters[p].storage_of != static_cast<int32_t>(p)) continue;
      elements += place.parameters[p].geometry.shard_elements(g);
    }
    place.reduced_elements = std::max(place.reduced_elements, elements);
  }
  return place;
}

// The region at the end of the arena so far.
Region Append(std::string name, int64_t bytes, int64_t& arena_bytes) {
  Region region{std::move(name), arena_bytes, RoundUp(bytes, kRegionAlignment)};
  arena_bytes += region.bytes;
  return region;
}

}  // namespace

absl::StatusOr<Layout> Layout::Create(LayoutSpec spec) {
  if (absl::Status status = ValidateLayoutSpec(spec); !status.ok()) return status;
  Layout layout;
  layout.spec_ = std::move(spec);
  layout.PlaceUnits();
  layout.PlaceReduction();
  return layout;
}

void Layout::PlaceUnits() {
  for (const Unit& unit : spec_.units) units_.push_back(PlaceUnit(unit, MeshNamed(spec_, unit.mesh)));
  PlaceSlots(true);
  shared_slots_ = static_cast<int32_t>(slots_.size());
  PlaceSlots(false);
  for (Region& slot : slots_) slot = Append(slot.name, slot.bytes, arena_bytes_);
  for (UnitPlace& unit : units_) {
    for (ParameterPlace& parameter : unit.parameters) parameter.offset += slots_[unit.slot].offset;
  }
}

// Slots of the units that hosts share, or of the others.
void Layout::PlaceSlots(bool shared) {
  const auto belongs = [&](size_t u) {
    const int32_t host_ranks = spec_.options.host_ranks;
    return (host_ranks > 1 && units_[u].mesh.per_node == host_ranks) == shared;
  };
  int32_t rotating = 0;
  for (size_t u = 0; u < units_.size(); ++u) rotating += belongs(u) && !spec_.units[u].keeps_slot;
  rotating = std::min(rotating, spec_.options.rotating_slots);
  const int32_t first = static_cast<int32_t>(slots_.size());
  for (int32_t s = 0; s < rotating; ++s) slots_.push_back({absl::StrCat("slot ", first + s), 0, 0});
  int32_t turn = 0;
  for (size_t u = 0; u < units_.size(); ++u) {
    if (!belongs(u)) continue;
    UnitPlace& place = units_[u];
    if (spec_.units[u].keeps_slot) {
      place.slot = static_cast<int32_t>(slots_.size());
      slots_.push_back({absl::StrCat("slot ", place.slot, " of '", spec_.units[u].name, "'"), 0, 0});
    } else {
      place.slot = first + turn++ % rotating;
    }
    slots_[place.slot].bytes = std::max(slots_[place.slot].bytes, place.bytes);
  }
}

Region Layout::shared_region() const {
  if (shared_slots_ == 0) return {"shared slots", 0, 0};
  return {"shared slots", 0, slots_[shared_slots_ - 1].offset + slots_[shared_slots_ - 1].bytes};
}

void Layout::PlaceReduction() {
  const LayoutOptions& options = spec_.options;
  const int64_t staging_bytes = RoundUp(options.staging_bytes, kRegionAlignment);
  const auto needed = [](const UnitPlace& unit) {
    // Within one node and one copy, sums are final where they are made.
    if (unit.mesh.shards == unit.mesh.per_node && unit.mesh.replicas == 1) return int64_t{0};
    return unit.mesh.shards / unit.mesh.per_node * unit.reduced_elements * int64_t{4};
  };
  int64_t own_staging = 0, own_accumulators = 0;
  for (UnitPlace& unit : units_) {
    if (unit.reduced_elements == 0) continue;
    const Region& slot = slots_[unit.slot];
    int64_t free = options.reuse_slots ? slot.bytes : 0;
    const bool sums_beside = shared(unit.slot) || options.spare_staging;
    if (const int64_t bytes = RoundUp(needed(unit), kRegionAlignment); bytes <= free && !sums_beside) {
      free -= bytes;
      unit.accumulators = {absl::StrCat("accumulators in ", slot.name), slot.offset + free, bytes};
    } else {
      own_accumulators = std::max(own_accumulators, std::min(bytes, RoundUp(options.accumulator_bytes, kRegionAlignment)));
    }
    const int64_t part = shared(unit.slot) ? free / unit.mesh.per_node / kParameterAlignment * kParameterAlignment : free;
    if (staging_bytes <= part) {
      unit.staging = {absl::StrCat("staging in ", slot.name), slot.offset, part};  // all that is left costs nothing
      unit.staging_stride = shared(unit.slot) ? part : 0;
    }
    if (staging_bytes > part || options.spare_staging) own_staging = staging_bytes;
  }
  staging_ = Append("staging", own_staging, arena_bytes_);
  accumulators_ = Append("accumulators", own_accumulators, arena_bytes_);
  for (UnitPlace& unit : units_) {
    if (unit.reduced_elements == 0) continue;
    if (unit.staging.bytes == 0) unit.staging = staging_;
    if (unit.accumulators.bytes == 0) unit.accumulators = accumulators_;
  }
}

std::vector<Region> Layout::Padding(int32_t unit) const {
  const UnitPlace& place = units_[unit];
  const Region& slot = slots_[place.slot];
  std::vector<std::pair<int64_t, int32_t>> order;  // by offset
  for (size_t p = 0; p < place.parameters.size(); ++p) {
    if (place.parameters[p].storage_of == static_cast<int32_t>(p)) order.push_back({place.parameters[p].offset, p});
  }
  std::sort(order.begin(), order.end());
  std::vector<Region> padding;
  const auto add = [&](std::string name, int64_t begin, int64_t end) {
    if (begin < end) padding.push_back({std::move(name), begin, end - begin});
  };
  int64_t at = slot.offset;
  for (const auto& [offset, p] : order) {
    const Parameter& parameter = spec_.units[unit].parameters[p];
    const ParameterPlace& own = place.parameters[p];
    add(absl::StrCat("gap before '", parameter.name, "'"), at, offset);
    at = std::max(at, offset + own.bytes);  // an empty parameter may lie where the next one begins
    add(absl::StrCat("padding of '", parameter.name, "'"), offset + own.geometry.elements() * DTypeBytes(parameter.dtype),
        offset + own.bytes);
  }
  add(absl::StrCat("tail of ", slot.name), at, slot.offset + slot.bytes);
  return padding;
}

std::string Layout::description() const {
  std::string text;
  const auto line = [&](const std::string& what, const auto& value) { absl::StrAppend(&text, what, "\t", value, "\n"); };
  for (size_t m = 0; m < spec_.meshes.size(); ++m) {
    const MeshShape& mesh = spec_.meshes[m];
    const std::string what = absl::StrCat("mesh ", m, ", ");
    line(what + "name", mesh.name);
    line(what + "shards", mesh.shards);
    line(what + "replicas", mesh.replicas);
    line(what + "per_node", mesh.per_node);
  }
  line("rotating_slots", spec_.options.rotating_slots);
  line("host_ranks", spec_.options.host_ranks);
  line("staging_bytes", spec_.options.staging_bytes);
  line("reuse_slots", spec_.options.reuse_slots ? "yes" : "no");
  line("spare_staging", spec_.options.spare_staging ? "yes" : "no");
  line("accumulator_bytes", spec_.options.accumulator_bytes);
  line("least_piece_bytes", spec_.options.least_piece_bytes);
  for (size_t u = 0; u < units_.size(); ++u) {
    const Unit& unit = spec_.units[u];
    const std::string what = absl::StrCat("unit ", u, ", ");
    line(what + "name", unit.name);
    line(what + "mesh", unit.mesh);
    line(what + "keeps_slot", unit.keeps_slot ? "yes" : "no");
    for (size_t p = 0; p < unit.parameters.size(); ++p) {
      const Parameter& parameter = unit.parameters[p];
      const std::string field = absl::StrCat(what, "parameter ", p, ", ");
      line(field + "name", parameter.name);
      line(field + "shape", absl::StrCat("[", absl::StrJoin(parameter.shape, ", "), "]"));
      line(field + "dtype", DTypeName(parameter.dtype));
      line(field + "gradient_dtype", DTypeName(parameter.gradient_dtype));
      line(field + "shard_dim", parameter.shard_dim);
      line(field + "frozen", parameter.frozen ? "yes" : "no");
      line(field + "has_extension", parameter.has_extension ? "yes" : "no");
      line(field + "strided_gradient", parameter.strided_gradient ? "yes" : "no");
      line(field + "shared_with", parameter.shared_with);
    }
  }
  // What follows from the above comes last: a difference is to be named by its cause.
  for (size_t u = 0; u < units_.size(); ++u) {
    const std::string what = absl::StrCat("place of unit ", u, ", ");
    for (size_t p = 0; p < units_[u].parameters.size(); ++p) {
      line(absl::StrCat(what, "parameter ", p, ", offset"), units_[u].parameters[p].offset);
    }
    line(what + "staging offset", units_[u].staging.offset);
    line(what + "accumulators offset", units_[u].accumulators.offset);
  }
  line("arena_bytes", arena_bytes_);
  return text;
}

uint64_t Layout::hash() const {
  StableHash hash;
  hash.Add(description());
  return hash.value();
}

}  // namespace tidetape::collectives
