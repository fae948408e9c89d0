#include "server/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/common/log.h"
#include "tidetape/v1/planner_service.grpc.pb.h"

namespace tidetape::server {
namespace {

// One message a stream waits at most, so this bounds the agents that can come at once.
constexpr size_t kIntakeQueue = 1 << 16;

int Millis(absl::Duration duration) { return static_cast<int>(absl::ToInt64Milliseconds(duration)); }

}  // namespace

Server::Options Server::Timed(Options options, ServerMetrics* metrics) {
  auto& plan_step = options.registry.activation.plan_step;
  plan_step = [metrics, untimed = plan_step](const planner::PlanningProblem& problem) {
    const absl::Time start = absl::Now();
    auto plan = untimed(problem);
    metrics->Planned(absl::Now() - start, plan.ok());
    return plan;
  };
  options.registry.activation.committed = [metrics](PlanCause cause) { metrics->CommittedPlan(PlanCauseName(cause)); };
  return options;
}

Server::Server(const Options& options, Store* store, Clock* clock)
    : unseen_metrics_(options.metrics == nullptr ? std::make_unique<ServerMetrics>(&unseen_registry_) : nullptr),
      metrics_(options.metrics == nullptr ? unseen_metrics_.get() : options.metrics),
      options_(Timed(options, metrics_)),
      store_(store),
      planning_threads_({.threads = options.planning_threads}),
      registry_(options_.registry, store, clock, &planning_threads_),
      question_threads_({.threads = options.question_threads}),
      intake_threads_({.threads = options.intake_threads, .queue = kIntakeQueue}),
      log_only_(*AuditLog::Open("", clock)),
      door_(&gate_, options.authenticator == nullptr ? &open_door_ : options.authenticator, metrics_),
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
                .metrics = metrics_,
                .messages_per_second = options.messages_per_second}),
      job_metrics_(options.job_metrics, [this] {
        std::vector<JobSnapshot> jobs;
        for (const auto& job : registry_.List()) jobs.push_back(job->Snapshot());
        return jobs;
      }) {
  AddValues();
}

void Server::AddValues() {
  const auto flag = [](bool value) { return value ? 1.0 : 0.0; };
  values_.AddGauge("tidetape_server_leader", "1 where this server answers calls, 0 where it stands by.",
                   [this, flag] { return flag(gate_.Check().ok()); });
  values_.AddGauge("tidetape_server_ready", "1 where agents may be sent here.", [this, flag] { return flag(Ready().ok()); });
  values_.AddGauge("tidetape_server_store_up", "1 where the store took a write when it was tried last.",
                   [this, flag] { return flag(StoreStatus().ok()); });
  values_.AddGauge("tidetape_server_streams", "Streams that are open, of agents and of watchers.",
                   [this] { return static_cast<double>(streams_.size()); });
  values_.AddGauge("tidetape_server_partial_tape_bytes", "Bytes of tapes that are not complete yet.",
                   [this] { return static_cast<double>(options_.tape_bytes - tape_budget_.left()); });
  const std::map<std::string, const Worker*> queues = {
      {"planning", &planning_threads_}, {"questions", &question_threads_}, {"intake", &intake_threads_}};
  for (const auto& [name, worker] : queues) {
    values_.AddGauge("tidetape_server_queue_tasks", "Tasks that wait for a thread, by queue.",
                     [worker = worker] { return static_cast<double>(worker->waiting()); }, {{"queue", name}});
  }
  for (const auto& [name, worker] : queues) {
    values_.AddCounter("tidetape_server_tasks_refused_total", "Tasks that were refused because their queue was full, by queue.",
                       [worker = worker] { return static_cast<double>(worker->refused()); }, {{"queue", name}});
  }
}

absl::Status Server::Ready() const {
  if (drained_) return absl::UnavailableError("the server is about to stop");
  if (!gate_.Check().ok()) return absl::UnavailableError("the server stands by");
  return StoreStatus();
}

absl::Status Server::StoreStatus() const {
  absl::MutexLock lock(&health_mutex_);
  return store_status_;
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Options& options, Store* store, Clock* clock) {
  std::unique_ptr<Server> server(new Server(options, store, clock));
  // Before it listens, so that no agent finds a server without its job.
  if (!options.stand_by) {
    if (absl::Status status = server->TakeUpJobs(); !status.ok()) return status;
  }
  if (absl::Status status = server->Listen(); !status.ok()) return status;
  if (!options.stand_by) server->StartSweeping();
  return server;
}

absl::Status Server::Lead() {
  if (absl::Status status = TakeUpJobs(); !status.ok()) return status;
  TellHealth(absl::OkStatus());
  StartSweeping();
  return absl::OkStatus();
}

absl::Status Server::TakeUpJobs() {
  if (absl::Status status = registry_.Restore(); !status.ok()) return status;
  gate_.Open();
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
  TellHealth(absl::OkStatus());  // nothing is known of the store yet
  return absl::OkStatus();
}

Server::~Server() {
  StopSweeping();
  Drain();
}

void Server::StartSweeping() {
  sweeper_ = std::thread([this] { SweepUntilStopped(); });
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
  auto* health = grpc_server_->GetHealthCheckService();
  health->SetServingStatus("live", true);
  health->SetServingStatus("store", store.ok());
  bool news = false;
  {
    absl::MutexLock lock(&health_mutex_);
    news = store.message() != store_status_.message();
    store_status_ = store;
  }
  const bool ready = Ready().ok();
  health->SetServingStatus("", ready);
  health->SetServingStatus(v1::PlannerService::service_full_name(), ready);
  if (news) {
    if (store.ok()) {
      spdlog::info("the store takes writes again");
    } else {
      spdlog::error("the store takes no writes: {}", std::string(store.message()));
    }
  }
}

void Server::Drain() {
  if (grpc_server_ == nullptr || drained_.exchange(true)) return;
  StopSweeping();
  // Of the store as it was: a lease may be given back already.
  TellHealth(StoreStatus());
  const size_t left = streams_.Drain(options_.reconnect_after, options_.drain_wait);
  if (left > 0) spdlog::info("{} streams did not leave in time, ending them", left);
  grpc_server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(options_.shutdown_wait));
  grpc_server_->Wait();
  // The intake may still be at work for streams that have ended.
  streams_.AwaitEmpty(options_.shutdown_wait);
}

}  // namespace tidetape::server
