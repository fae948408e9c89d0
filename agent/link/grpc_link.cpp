#include "agent/link/grpc_link.h"

#include <grpc/support/time.h>
#include <pthread.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/link/connect_call.h"
#include "agent/link/link_thread.h"
#include "net/leader_detail.h"

namespace tidetape::link {
namespace {

// A plan names every saved value of every block of a large model.
constexpr int kLargestPlanBytes = 64 << 20;

gpr_timespec AsGrpcTime(std::chrono::steady_clock::time_point time) {
  if (time == std::chrono::steady_clock::time_point::max()) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(time - std::chrono::steady_clock::now()).count();
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_micros(std::max<int64_t>(left, 0), GPR_TIMESPAN));
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const net::ClientCredentials& credentials,
                                           const GrpcLink::Tuning& tuning) {
  grpc::ChannelArguments arguments;
  const auto set = [&arguments](const char* name, std::chrono::milliseconds time) {
    arguments.SetInt(name, static_cast<int>(time.count()));
  };
  set(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, tuning.reconnect_initial);
  set(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, tuning.reconnect_ceiling);
  set(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, tuning.connect_timeout);
  set(GRPC_ARG_KEEPALIVE_TIME_MS, tuning.keepalive_interval);
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, tuning.keepalive_timeout);
  // A training job's proxy leads to data sets, not to its planner.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(kLargestPlanBytes);
  const auto secured = credentials.ForChannel(arguments);
  return grpc::CreateCustomChannel(address, secured, arguments);
}

}  // namespace

GrpcLink::GrpcLink(LinkOptions options, const Tuning& tuning, net::ClientSecurity security)
    : options_(std::move(options)),
      tuning_(tuning),
      security_(std::move(security)),
      outbox_(tuning.report_capacity, options_.memory_limit_bytes),
      servers_(options_.planner),
      backoff_(tuning.backoff, std::random_device{}()),
      queue_(AsTag(CallEvent::kWake)) {
  // Also for the threads that gRPC starts with its first channel.
  const SignalBlock no_signals;
  error_ = absl::StrCat("no connection to ", options_.planner, " yet");
  thread_ = std::thread([this] { Run(); });
}

GrpcLink::~GrpcLink() { Close(std::chrono::duration<double>(0)); }

bool GrpcLink::HasTape(uint64_t structure_hash) const { return outbox_.tapes().Has(structure_hash); }

tt_link_status GrpcLink::PutTape(planner::BlockTape tape) {
  if (superseded_) return TT_LINK_CLOSED;
  if (outbox_.tapes().Put(std::move(tape))) WakeIfStreaming();
  return TT_LINK_OK;
}

tt_link_status GrpcLink::ReportStep(StepReport report) {
  if (superseded_) return TT_LINK_CLOSED;
  const bool urgent = report.profile.has_value();
  const bool room = outbox_.PushReport(std::move(report));
  if (urgent || !flush_armed_) WakeIfStreaming();
  return room ? TT_LINK_OK : TT_LINK_DROPPED_OLDEST;
}

tt_link_status GrpcLink::PlanActivated(int64_t generation, int64_t step) {
  if (superseded_) return TT_LINK_CLOSED;
  outbox_.SetActivation({generation, step});
  WakeIfStreaming();
  return TT_LINK_OK;
}

tt_link_status GrpcLink::SetMemoryLimit(int64_t memory_limit_bytes) {
  if (superseded_) return TT_LINK_CLOSED;
  outbox_.SetMemoryLimit(memory_limit_bytes);
  WakeIfStreaming();
  return TT_LINK_OK;
}

LinkState GrpcLink::State() const {
  LinkState state;
  state.connected = streaming_;
  state.reports_sent = outbox_.reports_sent();
  state.reports_dropped = outbox_.reports_dropped();
  state.reconnects = reconnects_;
  const std::lock_guard<std::mutex> lock(error_mutex_);
  state.last_error = error_;
  return state;
}

void GrpcLink::Close(std::chrono::duration<double> timeout) {
  if (!thread_.joinable()) return;
  close_deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout);
  closing_ = true;
  queue_.Wake();
  thread_.join();
}

void GrpcLink::WakeIfStreaming() {
  if (streaming_) queue_.Wake();
}

void GrpcLink::Run() {
  pthread_setname_np(pthread_self(), "tt-link");
  StartCall();
  while (!finished_) {
    void* tag = nullptr;
    bool ok = false;
    const auto result = queue_.queue().AsyncNext(&tag, &ok, AsGrpcTime(NextDeadline()));
    if (result == grpc::CompletionQueue::GOT_EVENT) {
      const CallEvent event = FromTag(tag);
      if (event == CallEvent::kWake) {
        queue_.WakeTaken();
        flush_at_ = Clock::now() + tuning_.report_interval;
        flush_armed_ = true;
      }
      if (call_ != nullptr) call_->Handle(event, ok);
    }
    Advance(Clock::now());
  }
  streaming_ = false;
  queue_.ShutDown();
}

GrpcLink::Clock::time_point GrpcLink::NextDeadline() const {
  if (call_ != nullptr) return flush_armed_ ? std::min(flush_at_, call_->give_up_at()) : call_->give_up_at();
  return superseded_ ? Clock::time_point::max() : retry_at_;
}

absl::Status GrpcLink::PrepareStub() {
  absl::StatusOr<net::ClientCredentials> credentials = net::ClientCredentials::Load(security_, servers_.current());
  if (!credentials.ok()) return credentials.status();
  const bool same = stub_ != nullptr && connected_to_ == servers_.current() && credentials->SameChannel(credentials_);
  credentials_ = *std::move(credentials);
  if (same) return absl::OkStatus();
  connected_to_ = servers_.current();
  stub_ = v1::PlannerService::NewStub(MakeChannel(connected_to_, credentials_, tuning_));
  return absl::OkStatus();
}

void GrpcLink::StartCall() {
  if (absl::Status status = PrepareStub(); !status.ok()) {
    // The files may be there later, as where something renews them.
    retry_at_ = Clock::now() + backoff_.Next();
    const std::lock_guard<std::mutex> lock(error_mutex_);
    error_ = std::string(status.message());
    return;
  }
  StreamSession session(options_, outbox_, plans_, /*recap=*/streams_ > 0);
  call_ = std::make_unique<ConnectCall>(*stub_, queue_.queue(), credentials_, std::move(session),
                                        Clock::now() + tuning_.welcome_timeout);
}

void GrpcLink::Advance(Clock::time_point now) {
  if (call_ == nullptr) {
    // While the server is away nothing can leave, so closing does not wait.
    if (closing_) {
      finished_ = true;
    } else if (!superseded_ && now >= retry_at_) {
      StartCall();
    }
    if (call_ == nullptr) return;
  }
  StreamSession& session = call_->session();
  if (session.welcomed() && !streaming_ && !call_->leaving()) {
    if (streams_++ > 0) ++reconnects_;
    connected_at_ = now;
    streaming_ = true;
  }
  if (closing_ && !call_->leaving()) call_->SayGoodbye(close_deadline_);
  if (session.drain_seconds() && !call_->leaving()) call_->SayGoodbye(now + tuning_.goodbye_timeout);
  call_->CancelIfLate(now);
  if (flush_armed_ && now >= flush_at_) Flush(now);
  call_->Pump();
  {
    const std::lock_guard<std::mutex> lock(error_mutex_);
    if (session.welcomed()) error_ = session.complaint();
  }
  if (call_->over()) EndCall(now);
}

void GrpcLink::Flush(Clock::time_point now) {
  flush_at_ = now + tuning_.report_interval;
  if (outbox_.HasReports()) return;
  flush_armed_ = false;
  // A report that came before this line did not wake the thread; one that comes after it will.
  flush_armed_ = outbox_.HasReports();
}

GrpcLink::Clock::duration GrpcLink::NextAttempt(const grpc::Status& status, bool welcomed) {
  if (welcomed) servers_.BeginRound();
  if (servers_.Next(net::LeaderAddressOf(status))) return tuning_.next_server_pause;
  return backoff_.Next();
}

void GrpcLink::EndCall(Clock::time_point now) {
  streaming_ = false;
  flush_armed_ = false;
  const grpc::Status& status = call_->status();
  const StreamSession& session = call_->session();
  const bool refused =
      status.error_code() == grpc::StatusCode::INVALID_ARGUMENT || status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
  std::string error;
  if (call_->was_late() && !session.welcomed()) {
    error = absl::StrCat(connected_to_, " did not answer");
  } else if (session.drain_seconds()) {
    error = absl::StrCat(connected_to_, " is about to stop");
  } else {
    error = absl::StrCat("stream to ", connected_to_, " ended: ", status.ok() ? "without an error" : status.error_message());
  }
  if (status.error_code() == grpc::StatusCode::FAILED_PRECONDITION) {
    superseded_ = true;
    outbox_.Clear();
  } else if (refused) {
    // Sending the same again would end the next stream, too.
    outbox_.DiscardSentReports();
  } else {
    outbox_.RequeueReports();
  }
  if (session.welcomed() && now - connected_at_ >= tuning_.healthy_after) backoff_.Reset();
  Clock::duration pause = NextAttempt(status, session.welcomed());
  // With other servers to go to, there is no need to wait for this one.
  if (session.drain_seconds() && !servers_.several()) {
    pause += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*session.drain_seconds()));
  }
  retry_at_ = now + pause;
  call_ = nullptr;
  if (closing_) finished_ = true;
  const std::lock_guard<std::mutex> lock(error_mutex_);
  error_ = std::move(error);
}

}  // namespace tidetape::link
