#include "server/service/agent_stream.h"

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "net/error_info.h"
#include "server/common/log.h"
#include "server/common/version.h"
#include "server/text/one_line.h"

namespace tidetape::server {

namespace {

// What a fast peer may send at once: a large tape comes in many chunks.
constexpr double kBurstSeconds = 10;

}  // namespace

AgentStream::AgentStream(const Parts& parts, Peer peer) : parts_(parts), peer_(std::move(peer)), assembler_(parts.tape_budget) {
  const double rate = parts_.messages_per_second;
  if (rate > 0) limit_.emplace(rate, kBurstSeconds * rate);
}

AgentStream* AgentStream::Start(const Parts& parts, Peer peer) {
  std::shared_ptr<AgentStream> stream(new AgentStream(parts, std::move(peer)));
  stream->self_ = stream;
  if (parts.streams->Add(stream)) {
    stream->StartRead(&stream->request_);
  } else {
    stream->Close(absl::UnavailableError("the server is about to stop; connect again later"));
  }
  return stream.get();
}

void AgentStream::OnReadDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    if (finished_) return;
    if (!ok) {
      // The agent ended its side, or the call is gone; then OnCancel follows.
      peer_ended_ = true;
      FinishWhenAllIsSaid();
      return;
    }
    handling_ = true;
  }
  Dispatch();
}

void AgentStream::Dispatch() {
  parts_.metrics->TookMessage(request_.message_case());
  if (absl::Status status = TakeSequence(request_); !status.ok()) return Handled(status);
  const int64_t sequence = request_.sequence();
  std::function<absl::Status()> costly;
  absl::Status status;
  switch (request_.message_case()) {
    case v1::ConnectRequest::kHello:
      if (job_ == nullptr) {
        costly = [this, sequence] { return TakeFirstHello(request_.hello(), sequence); };
      } else {
        status = TakeLaterHello(request_.hello(), sequence);
      }
      break;
    case v1::ConnectRequest::kTapeChunk: {
      absl::StatusOr<std::optional<v1::BlockTape>> tape = assembler_.Add(sender_, request_.tape_chunk());
      status = tape.status();
      if (!status.ok()) break;
      if (tape->has_value()) {
        costly = [this, sequence, tape = std::move(**tape)] { return TakeTape(tape, sequence); };
      } else {
        Stored(sequence, absl::OkStatus());  // it is the tape's last chunk that counts
      }
      break;
    }
    case v1::ConnectRequest::kStepReport:
      status = ValidateReport(sender_, request_.step_report());
      if (status.ok()) status = job_->AddReport(sender_.rank, this, request_.step_report(), StoredAs(sequence));
      break;
    case v1::ConnectRequest::kPlanHeld:
      status = job_->AddPlanHeld(sender_.rank, this, request_.plan_held(), StoredAs(sequence));
      break;
    case v1::ConnectRequest::kPlanActivated:
      status = job_->AddPlanActivated(sender_.rank, this, request_.plan_activated(), StoredAs(sequence));
      break;
    default:
      // A newer agent's kind of message; taking it as read keeps old servers useful.
      Stored(sequence, absl::OkStatus());
  }
  if (costly == nullptr) return Handled(status);
  const bool posted = parts_.intake->Post([self = shared_from_this(), costly = std::move(costly)] { self->Handled(costly()); });
  if (!posted) Handled(absl::UnavailableError("too many agents send hellos and tapes at once; connect again later"));
}

absl::Status AgentStream::TakeSequence(const v1::ConnectRequest& request) {
  absl::MutexLock lock(&mutex_);
  if (request.sequence() <= last_sequence_) {
    return absl::InvalidArgumentError(absl::StrCat("job '", sender_.job, "', rank ", sender_.rank,
                                                   ": sequence = ", request.sequence(), " must be above ", last_sequence_));
  }
  if (job_ == nullptr && !request.has_hello()) return absl::InvalidArgumentError("the first message of a stream must be hello");
  last_sequence_ = request.sequence();
  unstored_.emplace(last_sequence_, absl::Now());
  return absl::OkStatus();
}

void AgentStream::Handled(const absl::Status& status) {
  if (!status.ok()) {
    spdlog::warn("stream refused: {} job={} rank={}", OneLine(std::string(status.message())), sender_.job, sender_.rank);
    Refuse(status);
  }
  bool leave = false;
  {
    absl::MutexLock lock(&mutex_);
    handling_ = false;
    leave = done_;
    if (!finished_) {
      reading_late_ = unstored_.size() >= kUnstored;
      if (!reading_late_) ReadNext();
    }
  }
  if (leave) Leave();
}

void AgentStream::ReadNext() {
  request_.Clear();
  const absl::Duration wait = limit_.has_value() ? limit_->Take(absl::Now()) : absl::ZeroDuration();
  if (wait == absl::ZeroDuration()) return StartRead(&request_);
  const auto turn = std::chrono::system_clock::now() + absl::ToChronoMicroseconds(wait);
  turn_.Set(turn, [self = shared_from_this()](bool) {
    absl::MutexLock lock(&self->mutex_);
    if (!self->finished_) self->StartRead(&self->request_);
  });
}

Job::Stored AgentStream::StoredAs(int64_t sequence) {
  return [self = shared_from_this(), sequence](const absl::Status& status) { self->Stored(sequence, status); };
}

void AgentStream::Stored(int64_t sequence, const absl::Status& status) {
  if (!status.ok()) {
    spdlog::warn("not stored: {} job={} rank={}", std::string(status.message()), sender_.job, sender_.rank);
    return Refuse(status);
  }
  absl::MutexLock lock(&mutex_);
  if (const auto message = unstored_.find(sequence); message != unstored_.end()) {
    parts_.metrics->Acknowledged(absl::Now() - message->second);
    unstored_.erase(message);
  }
  outbox_.PutAck(unstored_.empty() ? last_sequence_ : unstored_.begin()->first - 1);
  if (finished_) return;
  if (reading_late_ && !handling_ && unstored_.size() < kUnstored / 2) {
    reading_late_ = false;
    ReadNext();
  }
  WriteNext();
  FinishWhenAllIsSaid();
}

absl::Status AgentStream::TakeFirstHello(const v1::Hello& hello, int64_t sequence) {
  if (absl::Status status = ValidateHello(hello); !status.ok()) return status;
  if (absl::Status status = CheckRight(peer_.who, Right::kReport, hello.job()); !status.ok()) return status;
  sender_ = {hello.job(), hello.rank()};
  absl::StatusOr<std::shared_ptr<Job>> job = parts_.registry->FindOrCreate(hello.job());
  if (!job.ok()) return job.status();
  absl::StatusOr<v1::Welcome> welcome = (*job)->Connect(hello, shared_from_this(), StoredAs(sequence));
  if (!welcome.ok()) return welcome.status();
  job_ = *std::move(job);
  welcome->set_server_version(kVersion);
  absl::MutexLock lock(&mutex_);
  outbox_.PutWelcome(*std::move(welcome));
  WriteNext();
  return absl::OkStatus();
}

absl::Status AgentStream::TakeLaterHello(const v1::Hello& hello, int64_t sequence) {
  if (absl::Status status = ValidateHello(hello); !status.ok()) return status;
  if (hello.job() != sender_.job || hello.rank() != sender_.rank) {
    return absl::InvalidArgumentError(
        absl::StrCat("job '", sender_.job, "', rank ", sender_.rank, ": a later hello must name the same job and rank"));
  }
  return job_->Update(hello, this, StoredAs(sequence));
}

absl::Status AgentStream::TakeTape(const v1::BlockTape& tape, int64_t sequence) {
  absl::Status status = ValidateTape(sender_, tape);
  if (status.ok()) status = job_->AddTape(sender_.rank, this, tape);
  assembler_.Done();
  if (status.ok()) Stored(sequence, status);
  return status;
}

void AgentStream::SendPlan(std::shared_ptr<const v1::Plan> plan) {
  absl::MutexLock lock(&mutex_);
  outbox_.PutPlan(std::move(plan));
  WriteNext();
}

void AgentStream::RequestTapes(const std::vector<uint64_t>& structure_hashes) {
  absl::MutexLock lock(&mutex_);
  outbox_.PutTapeRequest(structure_hashes);
  WriteNext();
}

void AgentStream::Drain(absl::Duration reconnect_after) {
  absl::MutexLock lock(&mutex_);
  draining_ = true;
  outbox_.PutDrain(absl::ToDoubleSeconds(reconnect_after));
  WriteNext();
}

void AgentStream::WriteNext() {
  if (writing_ || finished_) return;
  std::optional<v1::ConnectResponse> next = outbox_.Take();
  if (!next.has_value()) return;
  response_ = *std::move(next);
  writing_ = true;
  StartWrite(&response_);
}

void AgentStream::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  // A failed write means that the call is gone; OnCancel or the read in flight ends it.
  if (ok) WriteNext();
  FinishWhenAllIsSaid();
}

void AgentStream::FinishWhenAllIsSaid() {
  if (!peer_ended_ || writing_ || finished_ || !unstored_.empty()) return;
  finished_ = true;
  goodbye_ = !draining_ && !peer_lost_;
  Finish(grpc::Status::OK);
}

void AgentStream::Refuse(const absl::Status& status) {
  parts_.metrics->ClosedStream(status.code());
  Close(status);
}

void AgentStream::Close(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (std::exchange(finished_, true)) return;
  Finish(net::ToGrpc(status));
}

void AgentStream::OnCancel() {
  {
    absl::MutexLock lock(&mutex_);
    goodbye_ = false;
    peer_lost_ = true;
  }
  Close(absl::CancelledError("the peer is gone"));
}

void AgentStream::OnDone() {
  {
    absl::MutexLock lock(&mutex_);
    done_ = true;
    if (handling_) return;
  }
  Leave();
}

void AgentStream::Leave() {
  Job::Parting parting = Job::Parting::kLost;
  {
    absl::MutexLock lock(&mutex_);
    if (goodbye_) parting = Job::Parting::kGoodbye;
  }
  if (job_ != nullptr) job_->Disconnect(sender_.rank, this, parting);
  parts_.streams->Remove(this);
  peer_.place.reset();
  turn_.Cancel();
  self_.reset();
}

}  // namespace tidetape::server
