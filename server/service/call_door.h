// The door for calls: this server must lead, the caller must be known, and may do what it asks for.
#ifndef TIDETAPE_SERVER_SERVICE_CALL_DOOR_H_
#define TIDETAPE_SERVER_SERVICE_CALL_DOOR_H_

#include <grpcpp/grpcpp.h>

#include <string>
#include <utility>

#include "net/error_info.h"
#include "server/auth/authenticator.h"
#include "server/auth/rights.h"
#include "server/metrics/server_metrics.h"
#include "server/service/serving_gate.h"

namespace tidetape::server {

// Thread-safe.
class CallDoor {
 public:
  // All outlive the door.
  CallDoor(const ServingGate* gate, const Authenticator* authenticator, ServerMetrics* metrics)
      : gate_(gate), authenticator_(authenticator), metrics_(metrics) {}

  // OK, with who it is, or the status to end the call with. Tokens come first: strangers are not told where the leader is.
  grpc::Status Enter(const grpc::CallbackServerContext& context, Right right, const std::string& job, Principal& who) const {
    const grpc::Status status = Check(context, right, job, who);
    if (!status.ok()) metrics_->RefusedCall(static_cast<absl::StatusCode>(status.error_code()));
    return status;
  }

 private:
  grpc::Status Check(const grpc::CallbackServerContext& context, Right right, const std::string& job, Principal& who) const {
    absl::StatusOr<Principal> caller = authenticator_->Identify(context);
    if (!caller.ok()) return net::ToGrpc(caller.status());
    who = *std::move(caller);
    if (absl::Status status = CheckRight(who, right, job); !status.ok()) return net::ToGrpc(status);
    return gate_->Check();
  }

  const ServingGate* const gate_;
  const Authenticator* const authenticator_;
  ServerMetrics* const metrics_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_SERVICE_CALL_DOOR_H_
