#include "server/job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/io/problem_io.h"
#include "planner/merge_ranks.h"
#include "server/log.h"
#include "server/pins.h"
#include "server/plan_message.h"
#include "server/tape_merge.h"

namespace tidetape::server {
namespace {

std::string DescribeLimit(int64_t bytes) {
  if (bytes < 0) return "keep everything";
  if (bytes == 0) return "least memory";
  return absl::StrCat(bytes, " bytes");
}

}  // namespace

Job::Job(std::string name, Store* store, Clock* clock, ConsiderPlanning consider_planning)
    : name_(std::move(name)),
      store_(store),
      clock_(clock),
      consider_planning_(std::move(consider_planning)),
      tapes_(std::make_shared<planner::TapesByHash>()),
      last_heard_(clock->Now()) {}

absl::Status Job::Restore() {
  const auto incarnations = store_->ListIncarnations(name_);
  if (!incarnations.ok()) return incarnations.status();
  const auto constraints = store_->GetConstraints(name_);
  if (!constraints.ok()) return constraints.status();
  const auto plans = store_->ListPlans(name_, 1);
  if (!plans.ok()) return plans.status();
  const auto hashes = store_->ListTapes(name_);
  if (!hashes.ok()) return hashes.status();
  auto tapes = std::make_shared<planner::TapesByHash>();
  for (const uint64_t hash : *hashes) {
    const auto message = store_->GetTape(name_, hash);
    if (!message.ok()) return message.status();
    tapes->emplace(hash, planner::FromProto(*message));
  }

  absl::MutexLock write_lock(&write_mutex_);
  absl::MutexLock lock(&mutex_);
  tapes_ = std::move(tapes);
  constraints_ = *constraints;
  for (const IncarnationRecord& record : *incarnations) {
    if (!incarnation_.id.empty()) superseded_.insert(incarnation_.id);
    incarnation_ = record;
  }
  if (!plans->empty()) {
    highest_generation_ = plans->front().generation();
    // The plan's inputs are not stored: the measurements that come will say whether it still holds.
    if (plans->front().incarnation() == incarnation_.id) {
      committed_ = std::make_shared<v1::Plan>(plans->front());
      planned_limit_ = committed_->memory_limit_bytes();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Job::Admission> Job::Admit(const v1::Hello& hello) const {
  if (hello.incarnation() == incarnation_.id) {
    if (hello.world_size() != incarnation_.world_size) {
      return absl::InvalidArgumentError(absl::StrCat("job '", name_, "', rank ", hello.rank(),
                                                     ": world_size = ", hello.world_size(), ", but incarnation '", incarnation_.id,
                                                     "' has ", incarnation_.world_size, " ranks"));
    }
    return Admission::kCurrent;
  }
  if (incarnation_.id.empty()) return Admission::kNewer;
  if (superseded_.count(hello.incarnation()) > 0 || hello.incarnation_order() < incarnation_.order) {
    return absl::FailedPreconditionError(absl::StrCat("job '", name_, "', rank ", hello.rank(), ": incarnation '",
                                                      hello.incarnation(), "' is superseded by the newer incarnation '",
                                                      incarnation_.id, "'; this start of the job must not report any more"));
  }
  return Admission::kNewer;
}

std::vector<std::shared_ptr<RankChannel>> Job::StartIncarnation(const IncarnationRecord& record) {
  std::vector<std::shared_ptr<RankChannel>> superseded;
  for (auto& [number, rank] : ranks_) {
    if (rank.channel != nullptr) superseded.push_back(std::move(rank.channel));
  }
  if (!incarnation_.id.empty()) superseded_.insert(incarnation_.id);
  incarnation_ = record;
  ranks_.clear();
  committed_ = nullptr;
  planning_status_ = absl::OkStatus();
  std::erase_if(costs_, [&record](const auto& entry) { return entry.first >= record.world_size; });
  return superseded;
}

absl::StatusOr<v1::Welcome> Job::Connect(const v1::Hello& hello, const std::shared_ptr<RankChannel>& channel) {
  // Streams to close and plans to send once no lock is held: closing a stream may come back as Disconnect on this very thread.
  std::vector<std::shared_ptr<RankChannel>> superseded;
  std::shared_ptr<RankChannel> replaced;
  std::shared_ptr<const v1::Plan> plan;
  v1::Welcome welcome;
  std::string superseded_id;
  {
    absl::MutexLock write_lock(&write_mutex_);
    Admission admission = Admission::kCurrent;
    {
      absl::MutexLock lock(&mutex_);
      const auto admitted = Admit(hello);
      if (!admitted.ok()) return admitted.status();
      admission = *admitted;
    }
    const IncarnationRecord record = {hello.incarnation(), hello.incarnation_order(), hello.world_size(), clock_->Now(),
                                      hello.device(),      hello.torch_version()};
    if (admission == Admission::kNewer) {
      if (absl::Status status = store_->AddIncarnation(name_, record); !status.ok()) return status;
    }
    absl::MutexLock lock(&mutex_);
    if (admission == Admission::kNewer) {
      superseded_id = incarnation_.id;
      superseded = StartIncarnation(record);
    }
    Rank& rank = ranks_[hello.rank()];
    replaced = std::exchange(rank.channel, channel);
    TakeHello(hello, rank);
    for (const uint64_t hash : hello.structure_hashes()) {
      if (tapes_->count(hash) == 0) welcome.add_missing_tapes(hash);
    }
    if (committed_ != nullptr && hello.held_generation() < committed_->generation()) plan = committed_;
  }
  for (const auto& old : superseded) {
    old->Close(absl::FailedPreconditionError(absl::StrCat("job '", name_, "': incarnation '", superseded_id,
                                                          "' is superseded by the newer incarnation '", hello.incarnation(), "'")));
  }
  if (replaced != nullptr) {
    replaced->Close(absl::AbortedError(
        absl::StrCat("job '", name_, "', rank ", hello.rank(), ": a new stream of the same rank replaced this one")));
  }
  if (!superseded_id.empty()) {
    AddEvent(absl::StrCat("incarnation ", hello.incarnation(), " with ", hello.world_size(), " ranks replaced ", superseded_id));
  }
  AddEvent(absl::StrCat("rank ", hello.rank(), " of ", hello.world_size(), replaced != nullptr ? " connected again" : " connected",
                        hello.node().empty() ? "" : absl::StrCat(" from ", hello.node())),
           hello.rank(), hello.active_generation());
  if (plan != nullptr) channel->SendPlan(plan);
  consider_planning_(shared_from_this());
  return welcome;
}

absl::Status Job::Update(const v1::Hello& hello, const RankChannel* channel) {
  {
    absl::MutexLock lock(&mutex_);
    const auto rank = FindRank(hello.rank(), channel);
    if (!rank.ok()) return rank.status();
    const v1::Hello& first = (*rank)->hello;
    if (hello.incarnation() != first.incarnation() || hello.world_size() != first.world_size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("job '", name_, "', rank ", hello.rank(), ": a later hello must not change incarnation or world_size"));
    }
    TakeHello(hello, **rank);
  }
  consider_planning_(shared_from_this());
  return absl::OkStatus();
}

void Job::TakeHello(const v1::Hello& hello, Rank& rank) {
  rank.hello = hello;
  rank.held_generation = hello.held_generation();
  rank.active_generation = hello.active_generation();
  rank.last_heard = last_heard_ = clock_->Now();
  highest_generation_ = std::max({highest_generation_, hello.held_generation(), hello.active_generation()});
}

void Job::Disconnect(int32_t rank, const RankChannel* channel) {
  {
    absl::MutexLock lock(&mutex_);
    const auto it = ranks_.find(rank);
    if (it == ranks_.end() || it->second.channel.get() != channel) return;
    it->second.channel = nullptr;
  }
  AddEvent(absl::StrCat("rank ", rank, " disconnected"), rank);
}

absl::StatusOr<Job::Rank*> Job::FindRank(int32_t rank, const RankChannel* channel) {
  const auto it = ranks_.find(rank);
  if (it == ranks_.end() || it->second.channel.get() != channel) {
    return absl::AbortedError(absl::StrCat("job '", name_, "', rank ", rank, ": this stream is not the rank's current one"));
  }
  it->second.last_heard = last_heard_ = clock_->Now();
  return &it->second;
}

absl::Status Job::AddTape(int32_t rank, const RankChannel* channel, const v1::BlockTape& tape) {
  const uint64_t hash = tape.structure_hash();
  {
    absl::MutexLock write_lock(&write_mutex_);
    v1::BlockTape merged = tape;
    std::string incarnation;
    bool sent_in_this_incarnation = false;
    {
      absl::MutexLock lock(&mutex_);
      if (const auto found = FindRank(rank, channel); !found.ok()) return found.status();
      incarnation = incarnation_.id;
      const auto sender = tape_incarnations_.find(hash);
      sent_in_this_incarnation = sender != tape_incarnations_.end() && sender->second == incarnation;
    }
    const absl::StatusOr<v1::BlockTape> known = store_->GetTape(name_, hash);
    if (!known.ok() && !absl::IsNotFound(known.status())) return known.status();
    const bool reshaped = known.ok() && !SameShape(*known, tape);
    // Within one incarnation the worst rank counts; a new start of the job may have other sizes and replaces what was there.
    if (known.ok() && sent_in_this_incarnation && !reshaped) {
      merged = *known;
      if (!RaiseBytes(tape, merged)) return absl::OkStatus();
    }
    if (absl::Status status = store_->PutTape(name_, merged); !status.ok()) return status;

    absl::MutexLock lock(&mutex_);
    auto tapes = std::make_shared<planner::TapesByHash>(*tapes_);
    (*tapes)[hash] = planner::FromProto(merged);
    tapes_ = std::move(tapes);
    tape_incarnations_[hash] = incarnation;
    ++revision_;
    revision_reason_ = absl::StrCat("the tape of ", tape.name(), " changed");
    // Costs are by op, so those of another row of ops mean nothing.
    for (auto& [owner, costs] : costs_) {
      const auto own = costs->find(hash);
      if (own == costs->end() || (!reshaped && own->second.cost_seconds.size() == static_cast<size_t>(merged.ops_size()))) continue;
      auto kept = std::make_shared<planner::CostsByHash>(*costs);
      kept->erase(hash);
      costs = std::move(kept);
    }
  }
  spdlog::info("tape {:016x} of {}: {} ops, {} storages job={} rank={}", hash, tape.name(), tape.ops_size(), tape.storages_size(),
               name_, rank);
  consider_planning_(shared_from_this());
  return absl::OkStatus();
}

absl::Status Job::AddReport(int32_t rank, const RankChannel* channel, const v1::StepReport& report) {
  std::shared_ptr<RankChannel> asked;
  std::vector<uint64_t> missing;
  bool round_complete = false;
  std::shared_ptr<const planner::MemoryProfile> profile;
  if (report.has_profile()) {
    profile = std::make_shared<planner::MemoryProfile>(ProfileFromMessage(report.profile()));
  }
  {
    absl::MutexLock lock(&mutex_);
    const auto found = FindRank(rank, channel);
    if (!found.ok()) return found.status();
    Rank& sender = **found;
    if (report.costs_size() > 0) {
      auto& slot = costs_[rank];
      auto costs = slot == nullptr ? std::make_shared<planner::CostsByHash>() : std::make_shared<planner::CostsByHash>(*slot);
      for (const v1::TapeCosts& update : report.costs()) {
        const auto tape = tapes_->find(update.structure_hash());
        if (tape != tapes_->end() && tape->second.ops.size() != static_cast<size_t>(update.cost_seconds_size())) {
          return absl::InvalidArgumentError(absl::StrCat("job '", name_, "', rank ", rank, ", step ", report.step(), ": costs of ",
                                                         update.cost_seconds_size(), " ops for tape ",
                                                         absl::Hex(update.structure_hash(), absl::kZeroPad16), " of block '",
                                                         tape->second.name, "', which has ", tape->second.ops.size()));
        }
        planner::UpdateCosts(CostsFromMessage(update), *costs);
      }
      slot = std::move(costs);
    }
    sender.last_report = report;
    sender.last_report.clear_profile();
    sender.last_report.clear_costs();
    sender.reported = true;
    sender.active_generation = report.generation();
    if (profile != nullptr) {
      sender.profile = profile;
      sender.fresh_profile = true;
      missing = planner::MissingTapes(*profile, *tapes_);
      asked = sender.channel;
      round_complete = static_cast<int32_t>(ranks_.size()) == incarnation_.world_size &&
                       std::all_of(ranks_.begin(), ranks_.end(), [](const auto& entry) { return entry.second.fresh_profile; });
    }
  }
  if (!missing.empty()) asked->RequestTapes(missing);
  if (round_complete) consider_planning_(shared_from_this());
  if (rank == 0) events_.Progress();
  return absl::OkStatus();
}

absl::Status Job::AddPlanHeld(int32_t rank, const RankChannel* channel, const v1::PlanHeld& held) {
  {
    absl::MutexLock lock(&mutex_);
    const auto found = FindRank(rank, channel);
    if (!found.ok()) return found.status();
    (*found)->plan_error = held.error();
    if (held.error().empty()) (*found)->held_generation = std::max((*found)->held_generation, held.generation());
  }
  if (!held.error().empty()) {
    spdlog::warn("cannot follow the plan: {} job={} rank={} generation={}", held.error(), name_, rank, held.generation());
    AddEvent(absl::StrCat("rank ", rank, " cannot follow the plan: ", held.error()), rank, held.generation());
  }
  return absl::OkStatus();
}

absl::Status Job::AddPlanActivated(int32_t rank, const RankChannel* channel, const v1::PlanActivated& activated) {
  bool all_active = false;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = FindRank(rank, channel);
    if (!found.ok()) return found.status();
    (*found)->active_generation = activated.generation();
    (*found)->held_generation = std::max((*found)->held_generation, activated.generation());
    all_active = static_cast<int32_t>(ranks_.size()) == incarnation_.world_size &&
                 std::all_of(ranks_.begin(), ranks_.end(),
                             [&activated](const auto& entry) { return entry.second.active_generation == activated.generation(); });
  }
  if (all_active) {
    AddEvent(absl::StrCat("all ranks run generation ", activated.generation(), " from step ", activated.step()), -1,
             activated.generation());
  }
  return absl::OkStatus();
}

absl::Status Job::SetConstraints(const v1::Constraints& constraints) {
  {
    absl::MutexLock write_lock(&write_mutex_);
    if (absl::Status status = store_->PutConstraints(name_, constraints); !status.ok()) return status;
    absl::MutexLock lock(&mutex_);
    constraints_ = constraints;
    ++revision_;
    revision_reason_ = "the constraints changed";
  }
  const std::string limit =
      constraints.has_memory_limit_bytes() ? DescribeLimit(constraints.memory_limit_bytes()) : "the agents' own";
  AddEvent(absl::StrCat("constraints set: limit ", limit, ", ", constraints.pins_size(), " pins"));
  consider_planning_(shared_from_this());
  return absl::OkStatus();
}

int64_t Job::LimitLocked() const {
  if (constraints_.has_memory_limit_bytes()) return constraints_.memory_limit_bytes();
  int64_t smallest = INT64_MAX;
  bool least_memory = false;
  for (const auto& [number, rank] : ranks_) {
    const int64_t limit = rank.hello.memory_limit_bytes();
    if (limit > 0) smallest = std::min(smallest, limit);
    if (limit == 0) least_memory = true;
  }
  if (smallest != INT64_MAX) return smallest;
  return least_memory ? 0 : -1;
}

std::string Job::MissingLocked() const {
  // Names few and counts the rest: a job may have thousands of ranks.
  const auto list = [](const std::vector<std::string>& items) {
    constexpr size_t kNamed = 4;
    std::string text = absl::StrJoin(items.begin(), items.begin() + std::min(items.size(), kNamed), ", ");
    return items.size() <= kNamed ? text : absl::StrCat(text, " and ", items.size() - kNamed, " more");
  };
  std::vector<std::string> unconnected, unsteady, missing;
  for (int32_t number = 0; number < incarnation_.world_size; ++number) {
    const auto it = ranks_.find(number);
    if (it == ranks_.end() || it->second.channel == nullptr) {
      unconnected.push_back(absl::StrCat(number));
    } else if (it->second.profile == nullptr || !it->second.profile->steady) {
      unsteady.push_back(absl::StrCat(number));
    } else {
      for (const uint64_t hash : planner::MissingTapes(*it->second.profile, *tapes_)) {
        missing.push_back(absl::StrCat(absl::Hex(hash, absl::kZeroPad16), " (rank ", number, ")"));
      }
    }
  }
  if (incarnation_.id.empty()) return "the first rank";
  if (!unconnected.empty()) return absl::StrCat("ranks to connect: ", list(unconnected), " of ", incarnation_.world_size);
  if (!unsteady.empty()) return absl::StrCat("a profile of a steady step from ranks: ", list(unsteady));
  if (!missing.empty()) return absl::StrCat("tapes: ", list(missing));
  return "";
}

std::string Job::WaitingForLocked() const {
  std::string missing = MissingLocked();
  if (!missing.empty() || planning_status_.ok()) return missing;
  return absl::StrCat("planning to succeed: ", planning_status_.message());
}

absl::StatusOr<PlanningInput> Job::MakePlanningInput() { return ReadPlanningInput(true); }

absl::StatusOr<PlanningInput> Job::PeekPlanningInput() { return ReadPlanningInput(false); }

absl::StatusOr<PlanningInput> Job::ReadPlanningInput(bool take) {
  PlanningInput input;
  std::shared_ptr<const planner::TapesByHash> tapes;
  std::vector<std::pair<int32_t, std::shared_ptr<const planner::MemoryProfile>>> profiles;
  Costs costs;
  v1::Constraints constraints;
  int64_t limit = 0;
  {
    absl::MutexLock lock(&mutex_);
    const std::string missing = MissingLocked();
    if (!missing.empty()) return absl::FailedPreconditionError(absl::StrCat("job '", name_, "' waits for ", missing));
    tapes = tapes_;
    costs = costs_;
    constraints = constraints_;
    limit = LimitLocked();
    input.newly_measured = true;
    for (const auto& [number, rank] : ranks_) {
      profiles.emplace_back(number, rank.profile);
      input.newly_measured = input.newly_measured && rank.fresh_profile;
    }
    if (take && input.newly_measured) {
      for (auto& [number, rank] : ranks_) rank.fresh_profile = false;
    }
    input.incarnation = incarnation_.id;
    input.committed = committed_;
    input.next_generation = highest_generation_ + 1;
    input.revision = revision_;
    if (committed_ == nullptr) {
      input.forced_reason = "the first plan of this start of the job";
    } else {
      if (revision_ != planned_revision_) input.forced_reason = revision_reason_;
      if (limit != planned_limit_) {
        input.forced_reason = absl::StrCat("the limit changed from ", DescribeLimit(planned_limit_), " to ", DescribeLimit(limit));
      }
      for (const auto& [number, rank] : ranks_) {
        const int64_t told = std::max(rank.held_generation, rank.active_generation);
        if (told <= committed_->generation()) continue;
        input.recommit = true;
        input.forced_reason =
            absl::StrCat("rank ", number, " holds generation ", told, ", above the server's ", committed_->generation());
      }
    }
  }
  const planner::CostsByHash no_costs;
  std::vector<planner::RankMeasurement> measurements;
  for (const auto& [number, profile] : profiles) {
    const auto own = costs.find(number);
    measurements.push_back({number, profile.get(), own == costs.end() ? &no_costs : own->second.get()});
  }
  auto problem = planner::MergeRanks(*tapes, measurements, limit);
  // Nothing is missing, so whatever does not fit together is wrong.
  if (!problem.ok()) return absl::InvalidArgumentError(problem.status().message());
  input.problem = *std::move(problem);
  for (const planner::ProfiledBlock& block : profiles.front().second->blocks) {
    input.structure_hashes.push_back(block.structure_hash);
  }
  ApplyPins(constraints.pins(), input.problem);
  return input;
}

bool Job::Adopt(const PlanningInput& input, const v1::Plan& plan) {
  auto adopted = std::make_shared<const v1::Plan>(plan);
  std::vector<std::shared_ptr<RankChannel>> channels;
  {
    absl::MutexLock lock(&mutex_);
    highest_generation_ = std::max(highest_generation_, plan.generation());
    if (incarnation_.id != input.incarnation) return false;
    committed_ = adopted;
    planned_revision_ = input.revision;
    planned_limit_ = plan.memory_limit_bytes();
    planning_status_ = absl::OkStatus();
    for (auto& [number, rank] : ranks_) {
      rank.plan_error.clear();
      if (rank.channel != nullptr) channels.push_back(rank.channel);
    }
  }
  for (const auto& channel : channels) channel->SendPlan(adopted);
  return true;
}

void Job::Confirm(const PlanningInput& input) {
  absl::MutexLock lock(&mutex_);
  if (incarnation_.id != input.incarnation) return;
  planned_revision_ = input.revision;
  planning_status_ = absl::OkStatus();
}

void Job::SetPlanningStatus(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (planning_status_ == status) return;
    planning_status_ = status;
  }
  if (!status.ok()) AddEvent(absl::StrCat("planning failed: ", std::string(status.message())));
}

std::shared_ptr<const v1::Plan> Job::committed() const {
  absl::MutexLock lock(&mutex_);
  return committed_;
}

v1::Constraints Job::constraints() const {
  absl::MutexLock lock(&mutex_);
  return constraints_;
}

bool Job::connected() const {
  absl::MutexLock lock(&mutex_);
  return ConnectedLocked() > 0;
}

absl::Time Job::last_heard() const {
  absl::MutexLock lock(&mutex_);
  return last_heard_;
}

void Job::AddEvent(const std::string& text, int32_t rank, int64_t generation) {
  v1::JobEvent event;
  event.set_unix_micros(absl::ToUnixMicros(clock_->Now()));
  event.set_text(text);
  event.set_rank(rank);
  event.set_generation(generation);
  spdlog::info("{} job={} rank={} generation={}", text, name_, rank, generation);
  events_.Add(event);
}

}  // namespace tidetape::server
