// How much of a model goes the zero-copy way, and why the rest does not.
#ifndef TIDETAPE_COLLECTIVES_COVERAGE_H_
#define TIDETAPE_COLLECTIVES_COVERAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/layout.h"

namespace tidetape::collectives {

struct UncoveredParameter {
  int32_t unit = 0;
  int32_t parameter = 0;
  std::string reason;
};

struct Coverage {
  int64_t total_bytes = 0;                    // of all gathered parameters without padding, shared ones once
  int64_t covered_bytes = 0;                  // of those in units without any reason against them
  std::vector<UncoveredParameter> uncovered;  // of each unit those with a reason of their own first

  double share() const { return total_bytes == 0 ? 1 : static_cast<double>(covered_bytes) / static_cast<double>(total_bytes); }
};

// Why the parameter cannot be placed or reduced without a copy; empty where it can. Depends on the layout alone, so that all ranks
// decide alike.
std::string ReasonAgainst(const Layout& layout, int32_t unit, int32_t parameter);

// A collective moves a whole unit, so a parameter with a reason takes its unit's other parameters with it; those say so.
Coverage CoverageOf(const Layout& layout);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_COVERAGE_H_
