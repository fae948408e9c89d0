#include "agent/link/connect_call.h"

#include <utility>

namespace tidetape::link {

ConnectCall::ConnectCall(v1::PlannerService::Stub& stub, grpc::CompletionQueue& queue, const net::ClientCredentials& credentials,
                         StreamSession session, TimePoint give_up_at)
    : session_(std::move(session)), give_up_at_(give_up_at) {
  credentials.AddToken(context_);
  stream_ = stub.PrepareAsyncConnect(&context_, &queue);
  stream_->StartCall(AsTag(CallEvent::kStarted));
}

void ConnectCall::Handle(CallEvent event, bool ok) {
  switch (event) {
    case CallEvent::kStarted:
      started_ = ok;
      ok ? Read() : Finish();
      break;
    case CallEvent::kRead: {
      reading_ = false;
      if (!ok) return Finish();
      const bool was_welcomed = session_.welcomed();
      session_.Handle(response_);
      if (session_.welcomed() && !was_welcomed && !leaving_) give_up_at_ = TimePoint::max();
      Read();
      break;
    }
    case CallEvent::kWritten:
    case CallEvent::kWritesDone:
      writing_ = false;
      broken_ = broken_ || !ok;
      break;
    case CallEvent::kFinished:
      finished_ = true;
      break;
    case CallEvent::kWake:
      break;
  }
}

void ConnectCall::Pump() {
  if (!started_ || broken_ || finished_ || said_goodbye_ || writing_) return;
  if (session_.Next(&request_)) {
    writing_ = true;
    stream_->Write(request_, AsTag(CallEvent::kWritten));
  } else if (leaving_ && session_.welcomed()) {
    said_goodbye_ = true;
    writing_ = true;
    stream_->WritesDone(AsTag(CallEvent::kWritesDone));
  }
}

void ConnectCall::SayGoodbye(TimePoint give_up_at) {
  leaving_ = true;
  give_up_at_ = give_up_at;
}

void ConnectCall::CancelIfLate(TimePoint now) {
  if (late_ || now < give_up_at_) return;
  late_ = true;
  give_up_at_ = TimePoint::max();
  context_.TryCancel();
}

void ConnectCall::Read() {
  reading_ = true;
  stream_->Read(&response_, AsTag(CallEvent::kRead));
}

void ConnectCall::Finish() { stream_->Finish(&status_, AsTag(CallEvent::kFinished)); }

}  // namespace tidetape::link
