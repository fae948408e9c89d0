#include "server/http/job_insights.h"

#include "absl/status/status.h"
#include "server/questions/job_queries.h"

namespace tidetape::server {
namespace {

int64_t GenerationOf(const Job& job) {
  const auto plan = job.committed();
  return plan == nullptr ? 0 : plan->generation();
}

}  // namespace

std::shared_ptr<const JobInsight> JobInsights::Get(const std::shared_ptr<Job>& job) {
  const std::string& name = job->name();
  const int64_t generation = GenerationOf(*job);
  bool ask = false;
  {
    absl::MutexLock lock(&mutex_);
    Entry& entry = entries_[name];
    const auto& known = entry.insight;
    if (known != nullptr && known->generation == generation && clock_->Now() - known->at < options_.fresh) return known;
    ask = !entry.under_way;
    entry.under_way = true;
  }
  if (ask && !post_([self = shared_from_this(), job] { self->Compute(job); })) {
    absl::MutexLock lock(&mutex_);
    entries_[name].under_way = false;
  }
  absl::MutexLock lock(&mutex_);
  const auto done = [this, &name]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto entry = entries_.find(name);
    return entry == entries_.end() || !entry->second.under_way;
  };
  mutex_.AwaitWithTimeout(absl::Condition(&done), options_.patience);
  const auto entry = entries_.find(name);
  return entry == entries_.end() ? nullptr : entry->second.insight;
}

void JobInsights::Compute(const std::shared_ptr<Job>& job) {
  auto insight = std::make_shared<JobInsight>();
  insight->generation = GenerationOf(*job);
  insight->frontier = AnswerGetFrontier(*job, v1::GetFrontierRequest());
  insight->memory = AnswerGetStepMemory(*job);
  insight->explanation = AnswerExplainPlan(*job, v1::ExplainPlanRequest());
  insight->at = clock_->Now();
  absl::MutexLock lock(&mutex_);
  entries_[job->name()] = {std::move(insight), false};
  MakeRoom();
}

void JobInsights::MakeRoom() {
  while (entries_.size() > options_.jobs) {
    auto oldest = entries_.end();
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      if (it->second.under_way || it->second.insight == nullptr) continue;
      if (oldest == entries_.end() || it->second.insight->at < oldest->second.insight->at) oldest = it;
    }
    if (oldest == entries_.end()) return;
    entries_.erase(oldest);
  }
}

}  // namespace tidetape::server
