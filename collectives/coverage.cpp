#include "collectives/coverage.h"

#include "absl/strings/str_cat.h"

namespace tidetape::collectives {

std::string ReasonAgainst(const Layout& layout, int32_t unit, int32_t parameter) {
  const Parameter& spec = layout.spec().units[unit].parameters[parameter];
  const ShardGeometry& geometry = layout.units()[unit].parameters[parameter].geometry;
  if (spec.has_extension) return "has an all-gather extension, which wants the shards itself";
  const int64_t piece = geometry.piece_elements(0) * DTypeBytes(spec.dtype);
  if (geometry.outer > 1 && piece < layout.spec().options.least_piece_bytes) {
    return absl::StrCat("Shard(", spec.shard_dim, ") scatters it in pieces of ", piece, " bytes");
  }
  if (spec.frozen) return "";
  if (spec.gradient_dtype != DType::kBFloat16 && spec.gradient_dtype != DType::kFloat32) {
    return absl::StrCat("its gradient is ", DTypeName(spec.gradient_dtype), "; only bfloat16 and float32 are added");
  }
  if (spec.strided_gradient) return "its gradient is not contiguous";
  return "";
}

Coverage CoverageOf(const Layout& layout) {
  Coverage coverage;
  for (size_t u = 0; u < layout.units().size(); ++u) {
    const Unit& unit = layout.spec().units[u];
    std::vector<std::string> reasons;
    std::string first;  // as the unit's other parameters see it
    int64_t bytes = 0;
    for (size_t p = 0; p < unit.parameters.size(); ++p) {
      const ParameterPlace& place = layout.units()[u].parameters[p];
      if (place.storage_of == static_cast<int32_t>(p)) bytes += place.geometry.elements() * DTypeBytes(unit.parameters[p].dtype);
      reasons.push_back(ReasonAgainst(layout, u, p));
      if (first.empty() && !reasons.back().empty())
        first = absl::StrCat("shares its unit with '", unit.parameters[p].name, "', which is not covered");
    }
    coverage.total_bytes += bytes;
    if (first.empty()) {
      coverage.covered_bytes += bytes;
      continue;
    }
    for (const bool of_its_own : {true, false}) {
      for (size_t p = 0; p < reasons.size(); ++p) {
        if (reasons[p].empty() == of_its_own) continue;
        coverage.uncovered.push_back({static_cast<int32_t>(u), static_cast<int32_t>(p), of_its_own ? reasons[p] : first});
      }
    }
  }
  return coverage;
}

}  // namespace tidetape::collectives
