// What an operator asks of a job.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "net/error_info.h"
#include "server/job/constraints.h"
#include "server/job/job.h"
#include "server/messages/plan_message.h"

namespace tidetape::server {
absl::StatusOr<std::vector<v1::Plan>> Job::Plans() const { return store_->ListPlans(name_, Store::kKeptPlans); }

absl::StatusOr<v1::Plan> Job::PlanOf(int64_t generation) const {
  auto plans = Plans();
  if (!plans.ok()) return plans.status();
  std::vector<std::string> kept;
  for (v1::Plan& plan : *plans) {
    if (plan.generation() == generation) return std::move(plan);
    kept.push_back(absl::StrCat(plan.generation()));
  }
  return net::WithErrorInfo(absl::NotFoundError(absl::StrCat(
                                "job '", name_, "' has no plan of generation ", generation,
                                kept.empty() ? "; it has none yet" : absl::StrCat("; kept are ", absl::StrJoin(kept, ", ")))),
                            "GENERATION_NOT_KEPT", {{"job", name_}, {"generation", absl::StrCat(generation)}});
}

absl::Status Job::CheckFrozen(int64_t generation) const {
  const auto plan = PlanOf(generation);
  if (!plan.ok()) return plan.status();
  const std::shared_ptr<const v1::Plan> now = committed();
  if (now == nullptr || StructureHashes(*plan) == StructureHashes(*now)) return absl::OkStatus();
  return net::WithErrorInfo(absl::FailedPreconditionError(absl::StrCat("job '", name_, "': the plan of generation ", generation,
                                                                       " is of other blocks than the job has now")),
                            "OTHER_BLOCKS", {{"job", name_}, {"generation", absl::StrCat(generation)}});
}

absl::Status Job::SetConstraints(const v1::Constraints& constraints, const std::string& etag) {
  {
    absl::MutexLock write_lock(&write_mutex_);
    if (!etag.empty() && etag != constraints_etag()) {
      return net::WithErrorInfo(absl::AbortedError(absl::StrCat("the constraints of job '", name_,
                                                                "' have changed since they were read; read them again")),
                                "CONSTRAINTS_CHANGED", {{"job", name_}});
    }
    if (constraints.frozen_generation() != 0) {
      if (absl::Status status = CheckFrozen(constraints.frozen_generation()); !status.ok()) return status;
    }
    if (absl::Status status = store_->PutConstraints(name_, constraints); !status.ok()) return status;
    absl::MutexLock lock(&mutex_);
    constraints_ = constraints;
    ++revision_;
    revision_reason_ = "the constraints changed";
  }
  AddEvent(absl::StrCat("constraints set: ", DescribeConstraints(constraints)));
  consider_planning_(shared_from_this());
  return absl::OkStatus();
}

v1::Constraints Job::constraints() const {
  absl::MutexLock lock(&mutex_);
  return constraints_;
}

std::string Job::constraints_etag() const { return ConstraintsEtag(constraints()); }

}  // namespace tidetape::server
