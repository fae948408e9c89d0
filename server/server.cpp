#include "server/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/log.h"
#include "tidetape/v1/planner_service.grpc.pb.h"

namespace tidetape::server {
namespace {

// One message a stream waits at most, so this bounds the agents that can come at once.
constexpr size_t kIntakeQueue = 1 << 16;

int Millis(absl::Duration duration) { return static_cast<int>(absl::ToInt64Milliseconds(duration)); }

}  // namespace

Server::Server(const Options& options, Store* store, Clock* clock)
    : options_(options),
      store_(store),
      planning_threads_({.threads = options.planning_threads}),
      registry_(options.registry, store, clock, &planning_threads_),
      question_threads_({.threads = options.question_threads}),
      intake_threads_({.threads = options.intake_threads, .queue = kIntakeQueue}),
      log_only_(*AuditLog::Open("", clock)),
      door_(&gate_, options.authenticator == nullptr ? &open_door_ : options.authenticator),
      peers_(options.streams_per_peer),
      tape_budget_(options.tape_bytes),
      service_({.door = &door_,
                .audit = options.audit == nullptr ? log_only_.get() : options.audit,
                .peers = &peers_,
                .registry = &registry_,
                .streams = &streams_,
                .question_threads = &question_threads_,
                .intake_threads = &intake_threads_,
                .tape_budget = &tape_budget_,
                .messages_per_second = options.messages_per_second}) {}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Options& options, Store* store, Clock* clock) {
  std::unique_ptr<Server> server(new Server(options, store, clock));
  // Before it listens, so that no agent finds a server without its job.
  if (!options.stand_by) {
    if (absl::Status status = server->Lead(); !status.ok()) return status;
  }
  if (absl::Status status = server->Listen(); !status.ok()) return status;
  return server;
}

absl::Status Server::Lead() {
  if (absl::Status status = registry_.Restore(); !status.ok()) return status;
  gate_.Open();
  TellHealth(absl::OkStatus());
  sweeper_ = std::thread([this] { SweepUntilStopped(); });
  return absl::OkStatus();
}

absl::Status Server::Listen() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  int port = 0;
  const auto credentials = options_.credentials == nullptr ? grpc::InsecureServerCredentials() : options_.credentials;
  builder.AddListeningPort(options_.listen, credentials, &port);
  builder.RegisterService(&service_);
  builder.SetMaxReceiveMessageSize(options_.max_receive_bytes);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Millis(options_.keepalive_interval));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Millis(options_.keepalive_timeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, Millis(options_.least_ping_interval));
  // Two servers on one port would share the agents between them.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  grpc_server_ = builder.BuildAndStart();
  if (grpc_server_ == nullptr || port == 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", options_.listen, "; is the port taken, or the address not of this machine?"));
  }
  const size_t colon = options_.listen.rfind(':');
  address_ = absl::StrCat(options_.listen.substr(0, colon), ":", port);
  TellHealth(options_.stand_by ? absl::UnavailableError("this server stands by") : absl::OkStatus());
  return absl::OkStatus();
}

Server::~Server() {
  StopSweeping();
  Drain();
}

void Server::StopSweeping() {
  {
    absl::MutexLock lock(&sweep_mutex_);
    stop_sweeping_ = true;
  }
  if (sweeper_.joinable()) sweeper_.join();
}

void Server::SweepUntilStopped() {
  absl::MutexLock lock(&sweep_mutex_);
  while (!sweep_mutex_.AwaitWithTimeout(absl::Condition(&stop_sweeping_), options_.sweep_interval)) {
    sweep_mutex_.Unlock();
    const absl::Status store = store_->Check();
    TellHealth(store);
    if (store.ok()) registry_.Sweep();
    sweep_mutex_.Lock();
  }
}

void Server::TellHealth(const absl::Status& store) {
  if (grpc_server_ == nullptr) return;  // it does not listen yet, and begins as what it is then
  auto* health = grpc_server_->GetHealthCheckService();
  health->SetServingStatus("live", true);
  health->SetServingStatus("store", store.ok());
  const bool ready = store.ok() && gate_.Check().ok() && !drained_;
  health->SetServingStatus("", ready);
  health->SetServingStatus(v1::PlannerService::service_full_name(), ready);
  if (store.message() != store_complaint_) {
    store_complaint_ = std::string(store.message());
    if (store.ok()) {
      spdlog::info("the store takes writes again");
    } else {
      spdlog::error("the store takes no writes: {}", store_complaint_);
    }
  }
}

void Server::Drain() {
  if (grpc_server_ == nullptr || drained_.exchange(true)) return;
  StopSweeping();
  TellHealth(store_->Check());
  const size_t left = streams_.Drain(options_.reconnect_after, options_.drain_wait);
  if (left > 0) spdlog::info("{} streams did not leave in time, ending them", left);
  grpc_server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(options_.shutdown_wait));
  grpc_server_->Wait();
  // The intake may still be at work for streams that have ended.
  streams_.AwaitEmpty(options_.shutdown_wait);
}

}  // namespace tidetape::server
