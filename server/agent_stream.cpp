#include "server/agent_stream.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/grpc_status.h"
#include "server/log.h"
#include "server/version.h"

namespace tidetape::server {

AgentStream* AgentStream::Start(JobRegistry* registry, StreamSet* streams) {
  std::shared_ptr<AgentStream> stream(new AgentStream(registry, streams));
  stream->self_ = stream;
  if (streams->Add(stream)) {
    stream->StartRead(&stream->request_);
  } else {
    stream->Close(absl::UnavailableError("the server is about to stop; connect again later"));
  }
  return stream.get();
}

void AgentStream::OnReadDone(bool ok) {
  if (!ok) {
    // The agent ended its side, or the call is gone.
    Close(absl::OkStatus());
    return;
  }
  if (absl::Status status = Take(request_); !status.ok()) {
    spdlog::warn("stream refused: {} job={} rank={}", std::string(status.message()), sender_.job, sender_.rank);
    Close(status);
    return;
  }
  absl::MutexLock lock(&mutex_);
  if (finished_) return;
  outbox_.PutAck(request_.sequence());
  request_.Clear();
  StartRead(&request_);
  WriteNext();
}

absl::Status AgentStream::Take(const v1::ConnectRequest& request) {
  if (request.sequence() <= last_sequence_) {
    return absl::InvalidArgumentError(absl::StrCat("job '", sender_.job, "', rank ", sender_.rank,
                                                   ": sequence = ", request.sequence(), " must be above ", last_sequence_));
  }
  last_sequence_ = request.sequence();
  if (request.has_hello()) return TakeHello(request.hello());
  if (job_ == nullptr) return absl::InvalidArgumentError("the first message of a stream must be hello");
  switch (request.message_case()) {
    case v1::ConnectRequest::kTapeChunk:
      return TakeTapeChunk(request.tape_chunk());
    case v1::ConnectRequest::kStepReport:
      return TakeReport(request.step_report());
    case v1::ConnectRequest::kPlanHeld:
      return job_->AddPlanHeld(sender_.rank, this, request.plan_held());
    case v1::ConnectRequest::kPlanActivated:
      return job_->AddPlanActivated(sender_.rank, this, request.plan_activated());
    default:
      // A newer agent's kind of message; taking it as read keeps old servers useful.
      return absl::OkStatus();
  }
}

absl::Status AgentStream::TakeHello(const v1::Hello& hello) {
  if (absl::Status status = ValidateHello(hello); !status.ok()) return status;
  if (job_ != nullptr) {
    if (hello.job() != sender_.job || hello.rank() != sender_.rank) {
      return absl::InvalidArgumentError(
          absl::StrCat("job '", sender_.job, "', rank ", sender_.rank, ": a later hello must name the same job and rank"));
    }
    return job_->Update(hello, this);
  }
  sender_ = {hello.job(), hello.rank()};
  absl::StatusOr<std::shared_ptr<Job>> job = registry_->FindOrCreate(hello.job());
  if (!job.ok()) return job.status();
  absl::StatusOr<v1::Welcome> welcome = (*job)->Connect(hello, shared_from_this());
  if (!welcome.ok()) return welcome.status();
  job_ = *std::move(job);
  welcome->set_server_version(kVersion);
  absl::MutexLock lock(&mutex_);
  outbox_.PutWelcome(*std::move(welcome));
  return absl::OkStatus();
}

absl::Status AgentStream::TakeTapeChunk(const v1::TapeChunk& chunk) {
  absl::StatusOr<std::optional<v1::BlockTape>> tape = assembler_.Add(sender_, chunk);
  if (!tape.ok() || !tape->has_value()) return tape.status();
  if (absl::Status status = ValidateTape(sender_, **tape); !status.ok()) return status;
  return job_->AddTape(sender_.rank, this, **tape);
}

absl::Status AgentStream::TakeReport(const v1::StepReport& report) {
  if (absl::Status status = ValidateReport(sender_, report); !status.ok()) return status;
  return job_->AddReport(sender_.rank, this, report);
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
}

void AgentStream::Close(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (std::exchange(finished_, true)) return;
  Finish(ToGrpc(status));
}

void AgentStream::OnCancel() { Close(absl::CancelledError("the peer is gone")); }

void AgentStream::OnDone() {
  if (job_ != nullptr) job_->Disconnect(sender_.rank, this);
  streams_->Remove(this);
  self_.reset();
}

}  // namespace tidetape::server
