// The transport of one Connect stream: at most one read and one write in flight, and an orderly end.
#ifndef TIDETAPE_AGENT_LINK_CONNECT_CALL_H_
#define TIDETAPE_AGENT_LINK_CONNECT_CALL_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>

#include "agent/link/stream_session.h"
#include "net/client_security.h"
#include "tidetape/v1/planner_service.grpc.pb.h"

namespace tidetape::link {

// Tags of a completion queue that serves one call at a time.
enum class CallEvent : intptr_t { kStarted = 1, kRead, kWritten, kWritesDone, kFinished, kWake };

inline void* AsTag(CallEvent event) { return reinterpret_cast<void*>(event); }
inline CallEvent FromTag(void* tag) { return static_cast<CallEvent>(reinterpret_cast<intptr_t>(tag)); }

// Used by the link's thread alone. Must not be destroyed before over().
class ConnectCall {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // Starts the call at once; its events arrive in `queue`. Cancelled at `give_up_at` unless the session was welcomed by then.
  ConnectCall(v1::PlannerService::Stub& stub, grpc::CompletionQueue& queue, const net::ClientCredentials& credentials,
              StreamSession session, TimePoint give_up_at);

  // Takes an event of the queue that belongs to the call.
  void Handle(CallEvent event, bool ok);

  // Writes what the session has to say next, if nothing is in flight.
  void Pump();

  // Ends the call once the session has nothing more to say; it is cancelled at `give_up_at`.
  void SayGoodbye(TimePoint give_up_at);

  // Cancels the call once `give_up_at` has passed.
  void CancelIfLate(TimePoint now);
  TimePoint give_up_at() const { return give_up_at_; }

  // The stream has ended and no event is outstanding.
  bool over() const { return finished_ && !reading_ && !writing_; }
  // True where the call was cancelled for being late.
  bool was_late() const { return late_; }
  const grpc::Status& status() const { return status_; }
  StreamSession& session() { return session_; }
  bool leaving() const { return leaving_; }

 private:
  void Read();
  void Finish();

  StreamSession session_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<v1::ConnectRequest, v1::ConnectResponse>> stream_;
  v1::ConnectRequest request_;
  v1::ConnectResponse response_;
  grpc::Status status_;
  TimePoint give_up_at_;
  bool started_ = false;
  bool reading_ = false;
  bool writing_ = false;
  bool broken_ = false;   // a write failed: the reason comes with the end of the stream
  bool leaving_ = false;  // goodbye was asked for
  bool said_goodbye_ = false;
  bool late_ = false;
  bool finished_ = false;
};

}  // namespace tidetape::link

#endif  // TIDETAPE_AGENT_LINK_CONNECT_CALL_H_
