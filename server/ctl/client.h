// The server as tidetapectl sees it: every call has a deadline, every error says what to do.
#ifndef TIDETAPE_SERVER_CTL_CLIENT_H_
#define TIDETAPE_SERVER_CTL_CLIENT_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "net/client_security.h"
#include "net/error_info.h"
#include "tidetape/v1/planner_service.grpc.pb.h"

namespace tidetape::ctl {

// Not thread-safe.
class Client {
 public:
  // `server` is host:port. Connecting happens with the first call.
  Client(std::string server, absl::Duration timeout, net::ClientCredentials credentials);

  // One unary call, as in client.Call(&Stub::GetPlan, request). Unavailable where the server cannot be reached, NotFound with the
  // nearest job name.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (v1::PlannerService::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                const Request& request) {
    grpc::ClientContext context;
    SetDeadline(timeout_, context);
    credentials_.AddToken(context);
    Response response;
    const grpc::Status status = (stub_.get()->*method)(&context, request, &response);
    if (!status.ok()) return Explain(net::FromGrpc(status), JobOf(request));
    return response;
  }

  // Hands on what WatchJob says until `each` returns false or `duration` is over.
  absl::Status Watch(const std::string& job, absl::Duration duration, const std::function<bool(const v1::WatchJobResponse&)>& each);

 private:
  template <typename Request>
  static std::string JobOf(const Request& request) {
    if constexpr (requires { request.job(); }) return request.job();
    return "";
  }

  static void SetDeadline(absl::Duration timeout, grpc::ClientContext& context);
  absl::Status Explain(const absl::Status& status, const std::string& job);

  const std::string server_;
  const absl::Duration timeout_;
  const net::ClientCredentials credentials_;
  std::unique_ptr<v1::PlannerService::Stub> stub_;
};

}  // namespace tidetape::ctl

#endif  // TIDETAPE_SERVER_CTL_CLIENT_H_
