// The gRPC handlers: they find the job, hand the question on, and nothing else.
#ifndef TIDETAPE_SERVER_SERVICE_PLANNER_SERVICE_H_
#define TIDETAPE_SERVER_SERVICE_PLANNER_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/auth/audit_log.h"
#include "server/auth/peer_streams.h"
#include "server/auth/rights.h"
#include "server/common/worker.h"
#include "server/messages/byte_budget.h"
#include "server/metrics/server_metrics.h"
#include "server/service/call_door.h"
#include "server/service/job_registry.h"
#include "server/service/stream_set.h"
#include "tidetape/v1/planner_service.grpc.pb.h"

namespace tidetape::server {

class PlannerServiceImpl final : public v1::PlannerService::CallbackService {
 public:
  // What the service works with; all outlive it.
  struct Parts {
    const CallDoor* door = nullptr;
    AuditLog* audit = nullptr;
    PeerStreams* peers = nullptr;
    JobRegistry* registry = nullptr;
    StreamSet* streams = nullptr;
    // Questions that need the planner or write to the store are answered here.
    Worker* question_threads = nullptr;
    // Hellos and tapes are taken here.
    Worker* intake_threads = nullptr;
    // Of tapes that are not complete yet.
    ByteBudget* tape_budget = nullptr;
    ServerMetrics* metrics = nullptr;
    // Messages a second of one stream, in the long run; 0: any number.
    double messages_per_second = 0;
  };

  explicit PlannerServiceImpl(const Parts& parts) : parts_(parts) {}

  grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse>* Connect(grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                   v1::GetJobResponse* response) override;
  grpc::ServerUnaryReactor* GetPlan(grpc::CallbackServerContext* context, const v1::GetPlanRequest* request,
                                    v1::GetPlanResponse* response) override;
  grpc::ServerUnaryReactor* ListPlans(grpc::CallbackServerContext* context, const v1::ListPlansRequest* request,
                                      v1::ListPlansResponse* response) override;
  grpc::ServerUnaryReactor* GetProblem(grpc::CallbackServerContext* context, const v1::GetProblemRequest* request,
                                       v1::GetProblemResponse* response) override;
  grpc::ServerUnaryReactor* GetFrontier(grpc::CallbackServerContext* context, const v1::GetFrontierRequest* request,
                                        v1::GetFrontierResponse* response) override;
  grpc::ServerUnaryReactor* ExplainPlan(grpc::CallbackServerContext* context, const v1::ExplainPlanRequest* request,
                                        v1::ExplainPlanResponse* response) override;
  grpc::ServerUnaryReactor* GetStepMemory(grpc::CallbackServerContext* context, const v1::GetStepMemoryRequest* request,
                                          v1::GetStepMemoryResponse* response) override;
  grpc::ServerUnaryReactor* SimulatePlan(grpc::CallbackServerContext* context, const v1::SimulatePlanRequest* request,
                                         v1::SimulatePlanResponse* response) override;
  grpc::ServerUnaryReactor* ComparePolicies(grpc::CallbackServerContext* context, const v1::ComparePoliciesRequest* request,
                                            v1::ComparePoliciesResponse* response) override;
  grpc::ServerUnaryReactor* PricePins(grpc::CallbackServerContext* context, const v1::PricePinsRequest* request,
                                      v1::PricePinsResponse* response) override;
  grpc::ServerUnaryReactor* FindBlockPlan(grpc::CallbackServerContext* context, const v1::FindBlockPlanRequest* request,
                                          v1::FindBlockPlanResponse* response) override;
  grpc::ServerUnaryReactor* FindLargestSize(grpc::CallbackServerContext* context, const v1::FindLargestSizeRequest* request,
                                            v1::FindLargestSizeResponse* response) override;
  grpc::ServerUnaryReactor* SetConstraints(grpc::CallbackServerContext* context, const v1::SetConstraintsRequest* request,
                                           v1::SetConstraintsResponse* response) override;
  grpc::ServerUnaryReactor* EndJob(grpc::CallbackServerContext* context, const v1::EndJobRequest* request,
                                   v1::EndJobResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(grpc::CallbackServerContext* context,
                                                           const v1::WatchJobRequest* request) override;

 private:
  // Answers with `question(job)` on a question thread, where the caller may ask it.
  template <typename Response>
  grpc::ServerUnaryReactor* Ask(grpc::CallbackServerContext* context, Right right, const std::string& job, Response* response,
                                std::function<absl::StatusOr<Response>(Job&)> question);

  // The same for what changes the job, with an entry in the audit log. `change` fills the entry's before and after.
  template <typename Response>
  grpc::ServerUnaryReactor* Change(grpc::CallbackServerContext* context, const std::string& action, const std::string& job,
                                   Response* response,
                                   std::function<absl::StatusOr<Response>(Job&, AuditLog::Entry& entry)> change);

  const Parts parts_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_SERVICE_PLANNER_SERVICE_H_
