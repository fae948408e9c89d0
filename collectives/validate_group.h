// Checks that a group is one of the unit's mesh.
#ifndef TIDETAPE_COLLECTIVES_VALIDATE_GROUP_H_
#define TIDETAPE_COLLECTIVES_VALIDATE_GROUP_H_

#include <cstdint>

#include "absl/status/status.h"
#include "collectives/group.h"
#include "collectives/layout.h"

namespace tidetape::collectives {

// InvalidArgument with the unit, the mesh and what does not fit.
absl::Status ValidateGroup(const Layout& layout, int32_t unit, const Group& group);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_VALIDATE_GROUP_H_
