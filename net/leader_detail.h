// How a server that stands by tells where the leader is: the detail NotLeader of an UNAVAILABLE status.
//
// Pure functions; safe to call from any thread.
#ifndef TIDETAPE_NET_LEADER_DETAIL_H_
#define TIDETAPE_NET_LEADER_DETAIL_H_

#include <grpcpp/support/status.h>

#include <string>

namespace tidetape::net {

// UNAVAILABLE with the leader's address, host:port, or empty where no server leads.
grpc::Status NotLeaderStatus(const std::string& leader_address);

// The leader's address that the status tells; empty where it tells none.
std::string LeaderAddressOf(const grpc::Status& status);

}  // namespace tidetape::net

#endif  // TIDETAPE_NET_LEADER_DETAIL_H_
