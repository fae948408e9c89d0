#include "agent/link/local_link.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "agent/link/link_thread.h"
#include "agent/link/step_plan_codec.h"
#include "planner/job/merge_ranks.h"
#include "planner/planner.h"

namespace tidetape::link {

LocalLink::LocalLink(LinkOptions options) : options_(std::move(options)), memory_limit_bytes_(options_.memory_limit_bytes) {
  const SignalBlock no_signals;
  thread_ = std::thread([this] { Run(); });
}

LocalLink::~LocalLink() { Close(std::chrono::duration<double>(0)); }

bool LocalLink::HasTape(uint64_t structure_hash) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return known_tapes_.count(structure_hash) > 0;
}

tt_link_status LocalLink::PutTape(planner::BlockTape tape) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!known_tapes_.insert(tape.structure_hash).second) return TT_LINK_OK;
  inbox_.tapes.push_back(std::move(tape));
  wake_.notify_one();
  return TT_LINK_OK;
}

tt_link_status LocalLink::ReportStep(StepReport report) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++reports_;
  const bool steady = report.profile.has_value() && report.profile->steady;
  for (const planner::TapeCosts& costs : report.costs) planner::UpdateCosts(costs, inbox_.costs);
  // Costs alone can wait for the next profile.
  if (steady) {
    inbox_.profile = std::move(report.profile);
    wake_.notify_one();
  }
  return TT_LINK_OK;
}

tt_link_status LocalLink::PlanActivated(int64_t generation, int64_t step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  held_generation_ = std::max(held_generation_, generation);
  return TT_LINK_OK;
}

tt_link_status LocalLink::SetMemoryLimit(int64_t memory_limit_bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  inbox_.memory_limit_bytes = memory_limit_bytes;
  wake_.notify_one();
  return TT_LINK_OK;
}

LinkState LocalLink::State() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  LinkState state;
  state.connected = true;
  state.reports_sent = reports_;
  state.last_error = error_;
  return state;
}

void LocalLink::Close(std::chrono::duration<double> timeout) {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    idle_.wait_for(lock, timeout, [this] { return !busy_ && !inbox_.urgent(); });
    closing_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void LocalLink::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return closing_ || inbox_.urgent(); });
    if (closing_) return;
    busy_ = true;
    Inbox inbox = std::exchange(inbox_, {});
    lock.unlock();
    const absl::Status status = Work(std::move(inbox));
    lock.lock();
    error_ = std::string(status.message());
    busy_ = false;
    idle_.notify_all();
  }
}

absl::Status LocalLink::Work(Inbox inbox) {
  try {
    if (Digest(std::move(inbox))) planning_status_ = Replan();
  } catch (const std::exception& failure) {
    // Planning must never end the training process.
    planning_status_ = absl::InternalError(absl::StrCat("planning failed: ", failure.what()));
  }
  return planning_status_;
}

bool LocalLink::Digest(Inbox inbox) {
  const bool limit_changed = inbox.memory_limit_bytes.value_or(memory_limit_bytes_) != memory_limit_bytes_;
  const bool news = inbox.profile.has_value() || limit_changed;
  const bool tapes_came = !inbox.tapes.empty();
  for (planner::BlockTape& tape : inbox.tapes) tapes_.emplace(tape.structure_hash, std::move(tape));
  for (const auto& [hash, costs] : inbox.costs) planner::UpdateCosts(costs, costs_);
  memory_limit_bytes_ = inbox.memory_limit_bytes.value_or(memory_limit_bytes_);
  if (inbox.profile) profile_ = std::move(inbox.profile);
  if (!profile_) return false;
  const bool waited = waits_for_tapes_;
  waits_for_tapes_ = !planner::MissingTapes(*profile_, tapes_).empty();
  // The policy counts measurements, so it is asked once for each.
  return !waits_for_tapes_ && (news || (waited && tapes_came));
}

absl::Status LocalLink::Replan() {
  const absl::StatusOr<planner::PlanningProblem> problem =
      planner::MergeRanks(tapes_, {{options_.rank, &*profile_, &costs_}}, memory_limit_bytes_);
  if (!problem.ok()) return problem.status();
  std::vector<uint64_t> hashes;
  for (const planner::ProfiledBlock& block : profile_->blocks) hashes.push_back(block.structure_hash);
  const absl::StatusOr<planner::ReplanReason> reason = policy_.ReasonToReplan(*problem, hashes);
  if (!reason.ok()) return reason.status();
  if (reason->text.empty()) return absl::OkStatus();
  const absl::StatusOr<planner::StepPlan> plan = planner::PlanStep(*problem);
  if (!plan.ok()) return plan.status();
  policy_.Follow(*problem, hashes, *plan);
  int64_t generation = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    generation = ++held_generation_;
  }
  plans_.Put(MakeOwnedPlan(*problem, hashes, *plan, {generation, memory_limit_bytes_, reason->text}));
  return absl::OkStatus();
}

}  // namespace tidetape::link
