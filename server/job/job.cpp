#include "server/job/job.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "net/error_info.h"
#include "server/common/log.h"
#include "server/messages/plan_message.h"
#include "server/messages/tape_merge.h"
#include "server/text/one_line.h"

namespace tidetape::server {
Job::Job(std::string name, Store* store, Clock* clock, ConsiderPlanning consider_planning)
    : name_(std::move(name)),
      store_(store),
      clock_(clock),
      consider_planning_(std::move(consider_planning)),
      last_heard_(clock->Now()) {}

absl::StatusOr<Job::Admission> Job::Admit(const v1::Hello& hello) const {
  if (hello.incarnation() == incarnation_.id) {
    if (end_.has_value() && end_->refuses) {
      return net::WithErrorInfo(absl::FailedPreconditionError(
                                    absl::StrCat("job '", name_, "', rank ", hello.rank(), ": incarnation '", hello.incarnation(),
                                                 "' has ended: ", end_->reason, "; start the job again to report")),
                                "JOB_ENDED", {{"job", name_}, {"incarnation", hello.incarnation()}});
    }
    if (hello.world_size() != incarnation_.world_size) {
      return net::WithErrorInfo(absl::InvalidArgumentError(absl::StrCat(
                                    "job '", name_, "', rank ", hello.rank(), ": world_size = ", hello.world_size(),
                                    ", but incarnation '", incarnation_.id, "' has ", incarnation_.world_size, " ranks")),
                                "INVALID_FIELD", {{"job", name_}, {"field", "world_size"}});
    }
    return Admission::kCurrent;
  }
  if (incarnation_.id.empty()) return Admission::kNewer;
  if (superseded_.count(hello.incarnation()) > 0 || hello.incarnation_order() < incarnation_.order) {
    return net::WithErrorInfo(
        absl::FailedPreconditionError(absl::StrCat("job '", name_, "', rank ", hello.rank(), ": incarnation '", hello.incarnation(),
                                                   "' is superseded by the newer incarnation '", incarnation_.id,
                                                   "'; this start of the job must not report any more")),
        "INCARNATION_SUPERSEDED", {{"job", name_}, {"incarnation", hello.incarnation()}});
  }
  return Admission::kNewer;
}

std::vector<std::shared_ptr<RankChannel>> Job::TakeChannels() {
  std::vector<std::shared_ptr<RankChannel>> channels;
  for (auto& [number, rank] : ranks_) {
    if (rank.channel != nullptr) channels.push_back(std::move(rank.channel));
    rank.channel = nullptr;
  }
  return channels;
}

std::vector<std::shared_ptr<RankChannel>> Job::StartIncarnation(const IncarnationRecord& record) {
  std::vector<std::shared_ptr<RankChannel>> superseded = TakeChannels();
  if (!incarnation_.id.empty()) superseded_.insert(incarnation_.id);
  incarnation_ = record;
  ranks_.clear();
  committed_ = nullptr;
  planning_status_ = absl::OkStatus();
  peaks_.Reset();
  residual_bytes_ = planned_residual_ = 0;
  measured_.ShrinkTo(record.world_size);
  taken_tapes_.clear();
  return superseded;
}

absl::StatusOr<v1::Welcome> Job::Connect(const v1::Hello& hello, const std::shared_ptr<RankChannel>& channel, Stored stored) {
  // Streams to close and plans to send once no lock is held: closing a stream may come back as Disconnect on this very thread.
  std::vector<std::shared_ptr<RankChannel>> superseded;
  std::shared_ptr<RankChannel> replaced;
  std::shared_ptr<const v1::Plan> plan;
  v1::Welcome welcome;
  std::string superseded_id;
  RankUpdate update;
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
    if (absl::Status status = Revive(); !status.ok()) return status;
    absl::MutexLock lock(&mutex_);
    if (admission == Admission::kNewer) {
      superseded_id = incarnation_.id;
      superseded = StartIncarnation(record);
    }
    Rank& rank = ranks_[hello.rank()];
    replaced = std::exchange(rank.channel, channel);
    update = TakeHello(hello, rank);
    for (const uint64_t hash : hello.structure_hashes()) {
      if (!measured_.HasTape(hash)) welcome.add_missing_tapes(hash);
    }
    if (committed_ != nullptr && hello.held_generation() < committed_->generation()) plan = committed_;
  }
  store_->UpdateRank(name_, std::move(update), std::move(stored));
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

absl::Status Job::Update(const v1::Hello& hello, const RankChannel* channel, Stored stored) {
  RankUpdate update;
  {
    absl::MutexLock lock(&mutex_);
    const auto rank = FindRank(hello.rank(), channel);
    if (!rank.ok()) return rank.status();
    update = TakeHello(hello, **rank);
  }
  store_->UpdateRank(name_, std::move(update), std::move(stored));
  consider_planning_(shared_from_this());
  return absl::OkStatus();
}

RankUpdate Job::MakeUpdate(int32_t number, const Rank& rank) const {
  RankUpdate update;
  update.incarnation = incarnation_.id;
  update.rank = number;
  update.heard = rank.last_heard;
  return update;
}

RankUpdate Job::TakeHello(const v1::Hello& hello, Rank& rank) {
  rank.hello = hello;
  rank.said_goodbye = false;
  rank.standing.held_generation = hello.held_generation();
  rank.standing.active_generation = hello.active_generation();
  rank.last_heard = last_heard_ = clock_->Now();
  highest_generation_ = std::max({highest_generation_, hello.held_generation(), hello.active_generation()});
  RankUpdate update = MakeUpdate(hello.rank(), rank);
  update.hello = hello;
  update.standing = rank.standing;
  return update;
}

void Job::Disconnect(int32_t rank, const RankChannel* channel, Parting parting) {
  {
    absl::MutexLock lock(&mutex_);
    const auto it = ranks_.find(rank);
    if (it == ranks_.end() || it->second.channel.get() != channel) return;
    it->second.channel = nullptr;
    it->second.said_goodbye = parting == Parting::kGoodbye;
  }
  AddEvent(absl::StrCat("rank ", rank, parting == Parting::kGoodbye ? " said goodbye" : " disconnected"), rank);
}

absl::StatusOr<Job::Rank*> Job::FindRank(int32_t rank, const RankChannel* channel) {
  const auto it = ranks_.find(rank);
  if (it == ranks_.end() || it->second.channel.get() != channel) {
    return absl::AbortedError(absl::StrCat("job '", name_, "', rank ", rank, ": this stream is not the rank's current one"));
  }
  it->second.last_heard = last_heard_ = clock_->Now();
  return &it->second;
}

void Job::RememberTape(size_t content) {
  constexpr size_t kRemembered = 4096;
  if (taken_tapes_.size() == kRemembered) taken_tapes_.clear();
  taken_tapes_.insert(content);
}

absl::Status Job::AddTape(int32_t rank, const RankChannel* channel, const v1::BlockTape& tape) {
  const uint64_t hash = tape.structure_hash();
  const size_t content = absl::HashOf(tape.SerializeAsString());
  {
    absl::MutexLock write_lock(&write_mutex_);
    v1::BlockTape merged = tape;
    std::string incarnation;
    bool sent_in_this_incarnation = false;
    {
      absl::MutexLock lock(&mutex_);
      if (const auto found = FindRank(rank, channel); !found.ok()) return found.status();
      if (taken_tapes_.count(content) > 0) return absl::OkStatus();
      incarnation = incarnation_.id;
      sent_in_this_incarnation = measured_.SentIn(incarnation, hash);
    }
    const absl::StatusOr<v1::BlockTape> known = store_->GetTape(name_, hash);
    if (!known.ok() && !absl::IsNotFound(known.status())) return known.status();
    const bool reshaped = known.ok() && !SameShape(*known, tape);
    // Within one incarnation the worst rank counts; a new start of the job may have other sizes and replaces what was there.
    if (known.ok() && sent_in_this_incarnation && !reshaped) {
      merged = *known;
      if (!RaiseBytes(tape, merged)) {
        absl::MutexLock lock(&mutex_);
        if (incarnation_.id == incarnation) RememberTape(content);
        return absl::OkStatus();
      }
    }
    const auto known_costs = reshaped ? Store::KnownCosts::kForget : Store::KnownCosts::kKeep;
    if (absl::Status status = store_->PutTape(name_, merged, known_costs); !status.ok()) return status;

    absl::MutexLock lock(&mutex_);
    measured_.PutTape(merged, incarnation, reshaped);
    // What a tape of another shape replaced has to be taken again where it comes back.
    if (reshaped) taken_tapes_.clear();
    RememberTape(content);
    ++revision_;
    revision_reason_ = absl::StrCat("the tape of ", tape.name(), " changed");
  }
  spdlog::info("tape {:016x} of {}: {} ops, {} storages job={} rank={}", hash, tape.name(), tape.ops_size(), tape.storages_size(),
               name_, rank);
  consider_planning_(shared_from_this());
  return absl::OkStatus();
}

absl::Status Job::AddReport(int32_t rank, const RankChannel* channel, const v1::StepReport& report, Stored stored) {
  std::shared_ptr<RankChannel> asked;
  std::vector<uint64_t> missing;
  bool round_complete = false;
  std::string learned;
  RankUpdate update;
  std::shared_ptr<const planner::MemoryProfile> profile;
  if (report.has_profile()) {
    profile = std::make_shared<planner::MemoryProfile>(ProfileFromMessage(report.profile()));
  }
  {
    absl::MutexLock lock(&mutex_);
    const auto found = FindRank(rank, channel);
    if (!found.ok()) return found.status();
    Rank& sender = **found;
    if (absl::Status status = measured_.AddCosts(rank, report.costs()); !status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat("job '", name_, "', rank ", rank, ", step ", report.step(), ": ", status.message()));
    }
    sender.last_report = report;
    sender.last_report.clear_profile();
    sender.last_report.clear_costs();
    if (report.live_bytes_size() > 0) {
      sender.live = std::make_shared<const LiveMemory>(LiveMemory{
          report.step(), report.generation(), report.step_peak_bytes(), {report.live_bytes().begin(), report.live_bytes().end()}});
    }
    ++sender.reports;
    sender.plain_step_seconds.Add(static_cast<float>(std::max(0.0, report.step_seconds() - report.replay_seconds())));
    sender.standing.active_generation = report.generation();
    learned = LearnResidual(rank, report);
    update = MakeUpdate(rank, sender);
    update.report = sender.last_report;
    update.standing = sender.standing;
    update.costs = measured_.CostsOf(rank, report.costs());
    if (report.has_profile()) update.profile = report.profile();
    if (profile != nullptr) {
      sender.profile = profile;
      sender.fresh_profile = true;
      missing = measured_.MissingTapes(*profile);
      asked = sender.channel;
      round_complete = RoundCompleteLocked();
    }
  }
  store_->UpdateRank(name_, std::move(update), std::move(stored));
  if (!missing.empty()) asked->RequestTapes(missing);
  if (!learned.empty()) AddEvent(learned, rank, report.generation());
  if (round_complete || !learned.empty()) consider_planning_(shared_from_this());
  if (rank == 0) events_.Progress();
  return absl::OkStatus();
}

absl::Status Job::AddPlanHeld(int32_t rank, const RankChannel* channel, const v1::PlanHeld& held, Stored stored) {
  RankUpdate update;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = FindRank(rank, channel);
    if (!found.ok()) return found.status();
    PlanStanding& standing = (*found)->standing;
    standing.error = held.error();
    if (held.error().empty()) standing.held_generation = std::max(standing.held_generation, held.generation());
    update = MakeUpdate(rank, **found);
    update.standing = standing;
  }
  store_->UpdateRank(name_, std::move(update), std::move(stored));
  if (!held.error().empty()) {
    spdlog::warn("cannot follow the plan: {} job={} rank={} generation={}", OneLine(held.error()), name_, rank, held.generation());
    AddEvent(absl::StrCat("rank ", rank, " cannot follow the plan: ", held.error()), rank, held.generation());
  }
  return absl::OkStatus();
}

absl::Status Job::AddPlanActivated(int32_t rank, const RankChannel* channel, const v1::PlanActivated& activated, Stored stored) {
  bool all_active = false;
  RankUpdate update;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = FindRank(rank, channel);
    if (!found.ok()) return found.status();
    PlanStanding& standing = (*found)->standing;
    standing.active_generation = activated.generation();
    standing.held_generation = std::max(standing.held_generation, activated.generation());
    update = MakeUpdate(rank, **found);
    update.standing = standing;
    all_active = static_cast<int32_t>(ranks_.size()) == incarnation_.world_size &&
                 std::all_of(ranks_.begin(), ranks_.end(), [&activated](const auto& entry) {
                   return entry.second.standing.active_generation == activated.generation();
                 });
  }
  store_->UpdateRank(name_, std::move(update), std::move(stored));
  if (all_active) {
    AddEvent(absl::StrCat("all ranks run generation ", activated.generation(), " from step ", activated.step()), -1,
             activated.generation());
  }
  return absl::OkStatus();
}

std::shared_ptr<const v1::Plan> Job::committed() const {
  absl::MutexLock lock(&mutex_);
  return committed_;
}

bool Job::connected() const {
  absl::MutexLock lock(&mutex_);
  return ConnectedLocked() > 0;
}

absl::Time Job::last_heard() const {
  absl::MutexLock lock(&mutex_);
  return last_heard_;
}

void Job::AddEvent(const std::string& told, int32_t rank, int64_t generation) {
  const std::string text = OneLine(told);
  v1::JobEvent event;
  event.set_unix_micros(absl::ToUnixMicros(clock_->Now()));
  event.set_text(text);
  event.set_rank(rank);
  event.set_generation(generation);
  spdlog::info("{} job={} rank={} generation={}", text, name_, rank, generation);
  events_.Add(event);
}

}  // namespace tidetape::server
