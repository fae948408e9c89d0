// Checks of a layout's spec before anything is computed from it.
//
// Everything behind these checks may rely on them: meshes exist, shapes are sound, names are unique and printable, and no sum of
// bytes overflows.
#ifndef TIDETAPE_COLLECTIVES_VALIDATE_LAYOUT_H_
#define TIDETAPE_COLLECTIVES_VALIDATE_LAYOUT_H_

#include "absl/status/status.h"
#include "collectives/layout_spec.h"

namespace tidetape::collectives {

// InvalidArgument with the mesh, or the unit, parameter and field.
absl::Status ValidateLayoutSpec(const LayoutSpec& spec);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_VALIDATE_LAYOUT_H_
