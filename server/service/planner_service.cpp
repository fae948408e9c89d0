#include "server/service/planner_service.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "net/error_info.h"
#include "server/job/constraints.h"
#include "server/messages/validate.h"
#include "server/questions/job_queries.h"
#include "server/service/agent_stream.h"
#include "server/service/watch_stream.h"

namespace tidetape::server {
namespace {

constexpr absl::Duration kLongestAnswer = absl::Minutes(1);

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
  return FinishWith(context, net::ToGrpc(status));
}

// How long the caller of a question waits; no longer than kLongestAnswer where it says nothing.
TimeLeft TimeLeftOf(const grpc::CallbackServerContext& context) {
  const absl::Time deadline = std::min(absl::FromChrono(context.deadline()), absl::Now() + kLongestAnswer);
  return [deadline] { return deadline - absl::Now(); };
}

std::string AsJson(const google::protobuf::Message& message) {
  std::string json;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  return google::protobuf::util::MessageToJsonString(message, &json, options).ok() ? json : "";
}

}  // namespace

template <typename Response>
grpc::ServerUnaryReactor* PlannerServiceImpl::Ask(grpc::CallbackServerContext* context, Right right, const std::string& job,
                                                  Response* response, std::function<absl::StatusOr<Response>(Job&)> question) {
  Principal who;
  if (const grpc::Status refused = parts_.door->Enter(*context, right, job, who); !refused.ok())
    return FinishWith(context, refused);
  auto found = parts_.registry->Find(job);
  if (!found.ok()) return FinishWith(context, found.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const bool posted =
      parts_.question_threads->Post([context, reactor, response, job = *std::move(found), question = std::move(question)] {
        // Whoever asked may be gone by now; planning for nobody would only keep others waiting.
        if (context->IsCancelled()) return reactor->Finish(grpc::Status::CANCELLED);
        absl::StatusOr<Response> answer = question(*job);
        if (answer.ok()) *response = *std::move(answer);
        reactor->Finish(net::ToGrpc(answer.status()));
      });
  if (!posted) {
    parts_.metrics->RefusedCall(absl::StatusCode::kResourceExhausted);
    reactor->Finish(net::ToGrpc(net::WithErrorInfo(
        absl::ResourceExhaustedError("too many questions wait for an answer; ask again later"), "TOO_MANY_QUESTIONS")));
  }
  return reactor;
}

template <typename Response>
grpc::ServerUnaryReactor* PlannerServiceImpl::Change(grpc::CallbackServerContext* context, const std::string& action,
                                                     const std::string& job, Response* response,
                                                     std::function<absl::StatusOr<Response>(Job&, AuditLog::Entry& entry)> change) {
  AuditLog::Entry entry;
  entry.action = action;
  entry.job = job;
  entry.peer = PeerHost(*context);
  Principal who;
  const grpc::Status refused = parts_.door->Enter(*context, Right::kChange, job, who);
  entry.who = who.name;
  if (refused.error_code() == grpc::PERMISSION_DENIED) {
    entry.outcome = refused.error_message();
    parts_.audit->Write(entry);
  }
  if (!refused.ok()) return FinishWith(context, refused);
  return Ask<Response>(context, Right::kChange, job, response,
                       [audit = parts_.audit, entry, change = std::move(change)](Job& changed) {
                         AuditLog::Entry written = entry;
                         absl::StatusOr<Response> answer = change(changed, written);
                         written.outcome = answer.ok() ? "OK" : std::string(answer.status().message());
                         audit->Write(written);
                         return answer;
                       });
}

grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse>* PlannerServiceImpl::Connect(
    grpc::CallbackServerContext* context) {
  AgentStream::Peer peer;
  grpc::Status refused = parts_.door->Enter(*context, Right::kReport, "", peer.who);
  if (!refused.ok()) return new RefusedConnect(refused);
  peer.place = parts_.peers->Take(peer.who.name + " at " + PeerHost(*context));
  if (peer.place == nullptr) {
    parts_.metrics->RefusedCall(absl::StatusCode::kResourceExhausted);
    return new RefusedConnect(net::ToGrpc(net::WithErrorInfo(
        absl::ResourceExhaustedError("this peer has too many streams open; see --streams_per_peer"), "TOO_MANY_STREAMS")));
  }
  return AgentStream::Start({.registry = parts_.registry,
                             .streams = parts_.streams,
                             .intake = parts_.intake_threads,
                             .tape_budget = parts_.tape_budget,
                             .metrics = parts_.metrics,
                             .messages_per_second = parts_.messages_per_second},
                            std::move(peer));
}

grpc::ServerUnaryReactor* PlannerServiceImpl::ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest*,
                                                       v1::ListJobsResponse* response) {
  Principal who;
  const grpc::Status refused = parts_.door->Enter(*context, Right::kList, "", who);
  if (!refused.ok()) return FinishWith(context, refused);
  for (const auto& job : parts_.registry->List()) *response->add_jobs() = job->Summary();
  return FinishWith(context, grpc::Status::OK);
}

grpc::ServerUnaryReactor* PlannerServiceImpl::GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                                     v1::GetJobResponse* response) {
  Principal who;
  const grpc::Status refused = parts_.door->Enter(*context, Right::kAsk, request->job(), who);
  if (!refused.ok()) return FinishWith(context, refused);
  const auto job = parts_.registry->Find(request->job());
  if (job.ok()) *response = (*job)->Describe();
  return FinishWith(context, job.status());
}

grpc::ServerUnaryReactor* PlannerServiceImpl::GetPlan(grpc::CallbackServerContext* context, const v1::GetPlanRequest* request,
                                                      v1::GetPlanResponse* response) {
  // The request lives until Finish. Older plans are read from the store.
  return Ask<v1::GetPlanResponse>(context, Right::kAsk, request->job(), response,
                                  [request](Job& job) { return AnswerGetPlan(job, *request); });
}

grpc::ServerUnaryReactor* PlannerServiceImpl::ListPlans(grpc::CallbackServerContext* context, const v1::ListPlansRequest* request,
                                                        v1::ListPlansResponse* response) {
  return Ask<v1::ListPlansResponse>(context, Right::kAsk, request->job(), response, [](Job& job) { return AnswerListPlans(job); });
}

grpc::ServerUnaryReactor* PlannerServiceImpl::GetProblem(grpc::CallbackServerContext* context, const v1::GetProblemRequest* request,
                                                         v1::GetProblemResponse* response) {
  return Ask<v1::GetProblemResponse>(context, Right::kAsk, request->job(), response,
                                     [](Job& job) { return AnswerGetProblem(job); });
}

grpc::ServerUnaryReactor* PlannerServiceImpl::GetFrontier(grpc::CallbackServerContext* context,
                                                          const v1::GetFrontierRequest* request,
                                                          v1::GetFrontierResponse* response) {
  return Ask<v1::GetFrontierResponse>(context, Right::kAsk, request->job(), response,
                                      [request](Job& job) { return AnswerGetFrontier(job, *request); });
}

grpc::ServerUnaryReactor* PlannerServiceImpl::ExplainPlan(grpc::CallbackServerContext* context,
                                                          const v1::ExplainPlanRequest* request,
                                                          v1::ExplainPlanResponse* response) {
  return Ask<v1::ExplainPlanResponse>(context, Right::kAsk, request->job(), response,
                                      [request](Job& job) { return AnswerExplainPlan(job, *request); });
}

grpc::ServerUnaryReactor* PlannerServiceImpl::GetStepMemory(grpc::CallbackServerContext* context,
                                                            const v1::GetStepMemoryRequest* request,
                                                            v1::GetStepMemoryResponse* response) {
  return Ask<v1::GetStepMemoryResponse>(context, Right::kAsk, request->job(), response,
                                        [](Job& job) { return AnswerGetStepMemory(job); });
}

grpc::ServerUnaryReactor* PlannerServiceImpl::SimulatePlan(grpc::CallbackServerContext* context,
                                                           const v1::SimulatePlanRequest* request,
                                                           v1::SimulatePlanResponse* response) {
  return Ask<v1::SimulatePlanResponse>(
      context, Right::kAsk, request->job(), response,
      [request, left = TimeLeftOf(*context)](Job& job) { return AnswerSimulatePlan(job, *request, left); });
}

grpc::ServerUnaryReactor* PlannerServiceImpl::ComparePolicies(grpc::CallbackServerContext* context,
                                                              const v1::ComparePoliciesRequest* request,
                                                              v1::ComparePoliciesResponse* response) {
  return Ask<v1::ComparePoliciesResponse>(
      context, Right::kAsk, request->job(), response,
      [request, left = TimeLeftOf(*context)](Job& job) { return AnswerComparePolicies(job, *request, left); });
}

grpc::ServerUnaryReactor* PlannerServiceImpl::PricePins(grpc::CallbackServerContext* context, const v1::PricePinsRequest* request,
                                                        v1::PricePinsResponse* response) {
  return Ask<v1::PricePinsResponse>(
      context, Right::kAsk, request->job(), response,
      [request, left = TimeLeftOf(*context)](Job& job) { return AnswerPricePins(job, *request, left); });
}

grpc::ServerUnaryReactor* PlannerServiceImpl::FindBlockPlan(grpc::CallbackServerContext* context,
                                                            const v1::FindBlockPlanRequest* request,
                                                            v1::FindBlockPlanResponse* response) {
  return Ask<v1::FindBlockPlanResponse>(
      context, Right::kAsk, request->job(), response,
      [request, left = TimeLeftOf(*context)](Job& job) { return AnswerFindBlockPlan(job, *request, left); });
}

grpc::ServerUnaryReactor* PlannerServiceImpl::FindLargestSize(grpc::CallbackServerContext* context,
                                                              const v1::FindLargestSizeRequest* request,
                                                              v1::FindLargestSizeResponse* response) {
  return Ask<v1::FindLargestSizeResponse>(
      context, Right::kAsk, request->job(), response,
      [request, left = TimeLeftOf(*context)](Job& job) { return AnswerFindLargestSize(job, *request, left); });
}

grpc::ServerUnaryReactor* PlannerServiceImpl::SetConstraints(grpc::CallbackServerContext* context,
                                                             const v1::SetConstraintsRequest* request,
                                                             v1::SetConstraintsResponse* response) {
  return Change<v1::SetConstraintsResponse>(
      context, "SetConstraints", request->job(), response,
      [request](Job& job, AuditLog::Entry& entry) -> absl::StatusOr<v1::SetConstraintsResponse> {
        entry.before = AsJson(job.constraints());
        entry.after = AsJson(request->constraints());
        absl::Status status = ValidateConstraints(job.name(), request->constraints());
        if (status.ok()) status = job.SetConstraints(request->constraints(), request->etag());
        if (!status.ok()) return status;
        v1::SetConstraintsResponse answer;
        *answer.mutable_constraints() = request->constraints();
        answer.set_etag(ConstraintsEtag(request->constraints()));
        return answer;
      });
}

grpc::ServerUnaryReactor* PlannerServiceImpl::EndJob(grpc::CallbackServerContext* context, const v1::EndJobRequest* request,
                                                     v1::EndJobResponse* response) {
  return Change<v1::EndJobResponse>(context, "EndJob", request->job(), response,
                                    [](Job& job, AuditLog::Entry& entry) -> absl::StatusOr<v1::EndJobResponse> {
                                      absl::Status status = job.End(entry.who + " ended it");
                                      if (!status.ok()) return status;
                                      v1::EndJobResponse answer;
                                      *answer.mutable_summary() = job.Summary();
                                      return answer;
                                    });
}

grpc::ServerWriteReactor<v1::WatchJobResponse>* PlannerServiceImpl::WatchJob(grpc::CallbackServerContext* context,
                                                                             const v1::WatchJobRequest* request) {
  Principal who;
  const grpc::Status refused = parts_.door->Enter(*context, Right::kAsk, request->job(), who);
  if (!refused.ok()) return new RefusedWatch(refused);
  auto job = parts_.registry->Find(request->job());
  if (!job.ok()) return new RefusedWatch(net::ToGrpc(job.status()));
  return WatchStream::Start(*std::move(job), parts_.streams, parts_.metrics);
}

}  // namespace tidetape::server
