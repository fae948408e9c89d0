#include "net/leader_detail.h"

#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::net {

grpc::Status NotLeaderStatus(const std::string& leader_address) {
  v1::NotLeader not_leader;
  not_leader.set_leader_address(leader_address);
  v1::ErrorStatus details;
  details.set_code(grpc::StatusCode::UNAVAILABLE);
  details.set_message(leader_address.empty() ? "this server stands by and no other one leads at the moment; connect again later"
                                             : "this server stands by; the leader is at " + leader_address);
  details.add_details()->PackFrom(not_leader);
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, details.message(), details.SerializeAsString());
}

std::string LeaderAddressOf(const grpc::Status& status) {
  v1::ErrorStatus details;
  v1::NotLeader not_leader;
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE || !details.ParseFromString(status.error_details())) return "";
  for (const google::protobuf::Any& detail : details.details()) {
    if (detail.UnpackTo(&not_leader)) return not_leader.leader_address();
  }
  return "";
}

}  // namespace tidetape::net
