// Answers to questions about a job that need the planner. They read the job and change nothing.
//
// May take as long as a plan: never call them on a gRPC callback thread. FailedPrecondition, with what is missing, before the job
// has tapes and steady profiles, and where a plan is needed, before the first one.
#ifndef TIDETAPE_SERVER_QUESTIONS_JOB_QUERIES_H_
#define TIDETAPE_SERVER_QUESTIONS_JOB_QUERIES_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/job/job.h"
#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::server {

absl::StatusOr<v1::GetPlanResponse> AnswerGetPlan(const Job& job, const v1::GetPlanRequest& request);
absl::StatusOr<v1::ListPlansResponse> AnswerListPlans(const Job& job);
absl::StatusOr<v1::GetProblemResponse> AnswerGetProblem(Job& job);
absl::StatusOr<v1::GetFrontierResponse> AnswerGetFrontier(Job& job, const v1::GetFrontierRequest& request);
absl::StatusOr<v1::ExplainPlanResponse> AnswerExplainPlan(Job& job, const v1::ExplainPlanRequest& request);
absl::StatusOr<v1::GetStepMemoryResponse> AnswerGetStepMemory(Job& job);

// How long whoever asks still waits; effort beyond it is not spent, and where the answer itself takes longer, the question ends
// with DeadlineExceeded.
using TimeLeft = std::function<absl::Duration()>;

absl::StatusOr<v1::SimulatePlanResponse> AnswerSimulatePlan(Job& job, const v1::SimulatePlanRequest& request,
                                                            const TimeLeft& time_left);
absl::StatusOr<v1::ComparePoliciesResponse> AnswerComparePolicies(Job& job, const v1::ComparePoliciesRequest& request,
                                                                  const TimeLeft& time_left);
absl::StatusOr<v1::PricePinsResponse> AnswerPricePins(Job& job, const v1::PricePinsRequest& request, const TimeLeft& time_left);
absl::StatusOr<v1::FindBlockPlanResponse> AnswerFindBlockPlan(Job& job, const v1::FindBlockPlanRequest& request,
                                                              const TimeLeft& time_left);
absl::StatusOr<v1::FindLargestSizeResponse> AnswerFindLargestSize(Job& job, const v1::FindLargestSizeRequest& request,
                                                                  const TimeLeft& time_left);

// InvalidArgument where the job has no such block.
absl::Status CheckBlock(const Job& job, int32_t block, size_t blocks);

// The committed plan and what it would be made from now.
struct CurrentPlanInput {
  std::shared_ptr<const v1::Plan> plan;
  PlanningInput input;
};

// FailedPrecondition also where the job runs other blocks by now than the plan was made for.
absl::StatusOr<CurrentPlanInput> CurrentPlan(Job& job);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_QUESTIONS_JOB_QUERIES_H_
