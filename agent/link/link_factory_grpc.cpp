// Builds with gRPC: the embedded planner and servers.
#include <memory>
#include <string>
#include <utility>

#include "agent/link/grpc_link.h"
#include "agent/link/local_link.h"
#include "agent/link/planner_link.h"
#include "agent/link/server_list.h"

namespace tidetape::link {

std::unique_ptr<PlannerLink> MakePlannerLink(LinkOptions options, std::string* error) {
  if (options.planner == "local") return std::make_unique<LocalLink>(std::move(options));
  *error = ComplaintAboutServers(options.planner);
  if (!error->empty()) return nullptr;
  return std::make_unique<GrpcLink>(std::move(options), GrpcLink::Tuning());
}

}  // namespace tidetape::link
