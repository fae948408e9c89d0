// Builds without gRPC: the embedded planner only.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/link/local_link.h"
#include "agent/link/planner_link.h"

namespace tidetape::link {

std::unique_ptr<PlannerLink> MakePlannerLink(LinkOptions options, std::string* error) {
  if (options.planner == "local") return std::make_unique<LocalLink>(std::move(options));
  *error = absl::StrCat("planner = '", options.planner, "': this build has no gRPC; use \"local\"");
  return nullptr;
}

}  // namespace tidetape::link
