#include "server/planner_service.h"

#include <utility>

#include "server/agent_stream.h"
#include "server/grpc_status.h"
#include "server/job_queries.h"
#include "server/validate.h"
#include "server/watch_stream.h"

namespace tidetape::server {
namespace {

// A stream that was refused before it began.
class RefusedWatch final : public grpc::ServerWriteReactor<v1::WatchJobResponse> {
 public:
  explicit RefusedWatch(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

// The same for the agents' streams.
class RefusedConnect final : public grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse> {
 public:
  explicit RefusedConnect(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

grpc::ServerUnaryReactor* FinishWith(grpc::CallbackServerContext* context, const grpc::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

grpc::ServerUnaryReactor* FinishWith(grpc::CallbackServerContext* context, const absl::Status& status) {
  return FinishWith(context, ToGrpc(status));
}

}  // namespace

template <typename Response>
grpc::ServerUnaryReactor* PlannerServiceImpl::Ask(grpc::CallbackServerContext* context, const std::string& job, Response* response,
                                                  std::function<absl::StatusOr<Response>(Job&)> question) {
  if (const grpc::Status refused = gate_->Check(); !refused.ok()) return FinishWith(context, refused);
  auto found = registry_->Find(job);
  if (!found.ok()) return FinishWith(context, found.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const bool posted =
      question_threads_->Post([context, reactor, response, job = *std::move(found), question = std::move(question)] {
        // Whoever asked may be gone by now; planning for nobody would only keep others waiting.
        if (context->IsCancelled()) return reactor->Finish(grpc::Status::CANCELLED);
        absl::StatusOr<Response> answer = question(*job);
        if (answer.ok()) *response = *std::move(answer);
        reactor->Finish(ToGrpc(answer.status()));
      });
  if (!posted) reactor->Finish(ToGrpc(absl::ResourceExhaustedError("too many questions wait for an answer; ask again later")));
  return reactor;
}

grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse>* PlannerServiceImpl::Connect(grpc::CallbackServerContext*) {
  if (const grpc::Status refused = gate_->Check(); !refused.ok()) return new RefusedConnect(refused);
  return AgentStream::Start(registry_, streams_, intake_threads_);
}

grpc::ServerUnaryReactor* PlannerServiceImpl::ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest*,
                                                       v1::ListJobsResponse* response) {
  if (const grpc::Status refused = gate_->Check(); !refused.ok()) return FinishWith(context, refused);
  for (const auto& job : registry_->List()) *response->add_jobs() = job->Summary();
  return FinishWith(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* PlannerServiceImpl::GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                                     v1::GetJobResponse* response) {
  if (const grpc::Status refused = gate_->Check(); !refused.ok()) return FinishWith(context, refused);
  const auto job = registry_->Find(request->job());
  if (job.ok()) *response = (*job)->Describe();
  return FinishWith(context, job.status());
}

grpc::ServerUnaryReactor* PlannerServiceImpl::GetPlan(grpc::CallbackServerContext* context, const v1::GetPlanRequest* request,
                                                      v1::GetPlanResponse* response) {
  if (const grpc::Status refused = gate_->Check(); !refused.ok()) return FinishWith(context, refused);
  const auto job = registry_->Find(request->job());
  if (!job.ok()) return FinishWith(context, job.status());
  auto answer = AnswerGetPlan(**job);
  if (answer.ok()) *response = *std::move(answer);
  return FinishWith(context, answer.status());
}

grpc::ServerUnaryReactor* PlannerServiceImpl::GetProblem(grpc::CallbackServerContext* context, const v1::GetProblemRequest* request,
                                                         v1::GetProblemResponse* response) {
  return Ask<v1::GetProblemResponse>(context, request->job(), response, [](Job& job) { return AnswerGetProblem(job); });
}

grpc::ServerUnaryReactor* PlannerServiceImpl::GetFrontier(grpc::CallbackServerContext* context,
                                                          const v1::GetFrontierRequest* request,
                                                          v1::GetFrontierResponse* response) {
  // The request lives until Finish.
  return Ask<v1::GetFrontierResponse>(context, request->job(), response,
                                      [request](Job& job) { return AnswerGetFrontier(job, *request); });
}

grpc::ServerUnaryReactor* PlannerServiceImpl::ExplainPlan(grpc::CallbackServerContext* context,
                                                          const v1::ExplainPlanRequest* request,
                                                          v1::ExplainPlanResponse* response) {
  return Ask<v1::ExplainPlanResponse>(context, request->job(), response,
                                      [request](Job& job) { return AnswerExplainPlan(job, *request); });
}

grpc::ServerUnaryReactor* PlannerServiceImpl::SimulatePlan(grpc::CallbackServerContext* context,
                                                           const v1::SimulatePlanRequest* request,
                                                           v1::SimulatePlanResponse* response) {
  return Ask<v1::SimulatePlanResponse>(context, request->job(), response,
                                       [request](Job& job) { return AnswerSimulatePlan(job, *request); });
}

grpc::ServerUnaryReactor* PlannerServiceImpl::SetConstraints(grpc::CallbackServerContext* context,
                                                             const v1::SetConstraintsRequest* request,
                                                             v1::SetConstraintsResponse* response) {
  return Ask<v1::SetConstraintsResponse>(context, request->job(), response,
                                         [request](Job& job) -> absl::StatusOr<v1::SetConstraintsResponse> {
                                           absl::Status status = ValidateConstraints(job.name(), request->constraints());
                                           if (status.ok()) status = job.SetConstraints(request->constraints());
                                           if (!status.ok()) return status;
                                           v1::SetConstraintsResponse answer;
                                           *answer.mutable_constraints() = request->constraints();
                                           return answer;
                                         });
}

grpc::ServerUnaryReactor* PlannerServiceImpl::EndJob(grpc::CallbackServerContext* context, const v1::EndJobRequest* request,
                                                     v1::EndJobResponse* response) {
  return Ask<v1::EndJobResponse>(context, request->job(), response, [](Job& job) -> absl::StatusOr<v1::EndJobResponse> {
    if (absl::Status status = job.End("an operator ended it"); !status.ok()) return status;
    v1::EndJobResponse answer;
    *answer.mutable_summary() = job.Summary();
    return answer;
  });
}

grpc::ServerWriteReactor<v1::WatchJobResponse>* PlannerServiceImpl::WatchJob(grpc::CallbackServerContext*,
                                                                             const v1::WatchJobRequest* request) {
  if (const grpc::Status refused = gate_->Check(); !refused.ok()) return new RefusedWatch(refused);
  auto job = registry_->Find(request->job());
  if (!job.ok()) return new RefusedWatch(ToGrpc(job.status()));
  return WatchStream::Start(*std::move(job), streams_);
}

}  // namespace tidetape::server
