// The gRPC handlers: they find the job, hand the question on, and nothing else.
#ifndef TIDETAPE_SERVER_PLANNER_SERVICE_H_
#define TIDETAPE_SERVER_PLANNER_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/job_registry.h"
#include "server/serving_gate.h"
#include "server/stream_set.h"
#include "server/worker.h"
#include "tidetape/v1/planner_service.grpc.pb.h"

namespace tidetape::server {

class PlannerServiceImpl final : public v1::PlannerService::CallbackService {
 public:
  // All outlive the service. Questions that need the planner or write to the store are answered on `question_threads`, hellos and
  // tapes are taken on `intake_threads`.
  PlannerServiceImpl(const ServingGate* gate, JobRegistry* registry, StreamSet* streams, Worker* question_threads,
                     Worker* intake_threads)
      : gate_(gate), registry_(registry), streams_(streams), question_threads_(question_threads), intake_threads_(intake_threads) {}

  grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse>* Connect(grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                   v1::GetJobResponse* response) override;
  grpc::ServerUnaryReactor* GetPlan(grpc::CallbackServerContext* context, const v1::GetPlanRequest* request,
                                    v1::GetPlanResponse* response) override;
  grpc::ServerUnaryReactor* GetProblem(grpc::CallbackServerContext* context, const v1::GetProblemRequest* request,
                                       v1::GetProblemResponse* response) override;
  grpc::ServerUnaryReactor* GetFrontier(grpc::CallbackServerContext* context, const v1::GetFrontierRequest* request,
                                        v1::GetFrontierResponse* response) override;
  grpc::ServerUnaryReactor* ExplainPlan(grpc::CallbackServerContext* context, const v1::ExplainPlanRequest* request,
                                        v1::ExplainPlanResponse* response) override;
  grpc::ServerUnaryReactor* SimulatePlan(grpc::CallbackServerContext* context, const v1::SimulatePlanRequest* request,
                                         v1::SimulatePlanResponse* response) override;
  grpc::ServerUnaryReactor* SetConstraints(grpc::CallbackServerContext* context, const v1::SetConstraintsRequest* request,
                                           v1::SetConstraintsResponse* response) override;
  grpc::ServerUnaryReactor* EndJob(grpc::CallbackServerContext* context, const v1::EndJobRequest* request,
                                   v1::EndJobResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(grpc::CallbackServerContext* context,
                                                           const v1::WatchJobRequest* request) override;

 private:
  // Answers with `question(job)` on a question thread.
  template <typename Response>
  grpc::ServerUnaryReactor* Ask(grpc::CallbackServerContext* context, const std::string& job, Response* response,
                                std::function<absl::StatusOr<Response>(Job&)> question);

  const ServingGate* const gate_;
  JobRegistry* const registry_;
  StreamSet* const streams_;
  Worker* const question_threads_;
  Worker* const intake_threads_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_PLANNER_SERVICE_H_
