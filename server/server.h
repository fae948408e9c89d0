// The whole server: registry, threads, gRPC, health and reflection.
#ifndef TIDETAPE_SERVER_SERVER_H_
#define TIDETAPE_SERVER_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/auth/audit_log.h"
#include "server/auth/authenticator.h"
#include "server/auth/peer_streams.h"
#include "server/common/clock.h"
#include "server/common/worker.h"
#include "server/messages/byte_budget.h"
#include "server/metrics/job_metrics.h"
#include "server/metrics/scraped_values.h"
#include "server/metrics/server_metrics.h"
#include "server/service/call_door.h"
#include "server/service/job_registry.h"
#include "server/service/planner_service.h"
#include "server/service/serving_gate.h"
#include "server/service/stream_set.h"
#include "server/store/store.h"

namespace tidetape::server {

// The gRPC health service tells, by service name:
//   "live"                                 the process answers; true until it ends
//   "store"                                the store takes writes
//   "" and "tidetape.v1.PlannerService"    ready: this server leads, its store takes writes, and it is not about to stop
class Server {
 public:
  struct Options {
    // host:port; port 0 takes a free one.
    std::string listen = "127.0.0.1:50551";
    JobRegistry::Options registry;
    // How connections are secured; null: plaintext.
    std::shared_ptr<grpc::ServerCredentials> credentials;
    // Who may call, and where changes are written down; both outlive the server. Null: everybody is an operator, and the log alone.
    const Authenticator* authenticator = nullptr;
    AuditLog* audit = nullptr;
    // Where the server counts what it does; outlives the server. Null: nowhere that anybody sees.
    ServerMetrics* metrics = nullptr;
    // Bounds on the jobs' series.
    JobMetrics::Options job_metrics;
    // Most streams of one peer: a token's name and a host.
    size_t streams_per_peer = 16384;
    // Bytes of tapes that are not complete yet, of all streams together; agents that send more at once come back later.
    int64_t tape_bytes = int64_t{2} << 30;
    // Messages a second of one stream, in the long run; whoever sends more is read more slowly. 0: any number.
    double messages_per_second = 0;
    // Begin without the store's jobs and refuse all calls, until Lead().
    bool stand_by = false;
    // Threads that plan; jobs queue for them.
    int planning_threads = 1;
    // Threads that answer questions which need the planner.
    int question_threads = 2;
    // Threads that take hellos and tapes: they check them and wait for the store.
    int intake_threads = 4;
    // How often the store is tried, and jobs are looked after: ended, forgotten, planned again.
    absl::Duration sweep_interval = absl::Seconds(2);
    // Largest message that is taken, bytes.
    int max_receive_bytes = 8 << 20;
    // Pings on connections without traffic: how often, and how long an answer may take. Finds peers that vanished.
    absl::Duration keepalive_interval = absl::Seconds(20);
    absl::Duration keepalive_timeout = absl::Seconds(10);
    // Agents may ping this often; below it gRPC ends their connection with too_many_pings.
    absl::Duration least_ping_interval = absl::Seconds(5);
    // What agents are told on drain, how long they have to leave, and how long calls have to end after that.
    absl::Duration reconnect_after = absl::Seconds(1);
    absl::Duration drain_wait = absl::Seconds(3);
    absl::Duration shutdown_wait = absl::Seconds(2);
  };

  // Restores the store's jobs, unless it is to stand by, and listens. `store` and `clock` outlive the server. Unavailable where the
  // address cannot be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Options& options, Store* store, Clock* clock);

  // Drains.
  ~Server();

  // Where it listens, with the port that was taken, as in "127.0.0.1:50551".
  const std::string& address() const { return address_; }

  // Takes up the store's jobs and answers from now on. Once, for a server that stands by.
  absl::Status Lead();

  // Where calls are sent while this server stands by; empty where no server leads.
  void StandBy(const std::string& leader_address) { gate_.StandBy(leader_address); }

  // OK where agents may be sent here: this server leads, its store takes writes, and it is not about to stop.
  absl::Status Ready() const;

  // By name.
  std::vector<std::shared_ptr<Job>> jobs() const { return registry_.List(); }
  // Streams that are open, of agents and of watchers.
  size_t streams() const { return streams_.size(); }
  // Runs it on a thread for questions that need the planner; false where too many wait.
  bool PostQuestion(std::function<void()> question) { return question_threads_.Post(std::move(question)); }

  // What can be read of the server and of its jobs at any time; for a page of metrics, beside what Options::metrics counts.
  std::vector<const prometheus::Collectable*> collectables() const { return {&values_, &job_metrics_}; }

  // Says NOT_SERVING, sends agents away with a time to come back, waits for them, then ends what is left. Ends within drain_wait +
  // shutdown_wait. Call it from one thread; the second call does nothing.
  void Drain();

 private:
  Server(const Options& options, Store* store, Clock* clock);
  // The options with plan_step timed.
  static Options Timed(Options options, ServerMetrics* metrics);
  void AddValues();
  absl::Status TakeUpJobs();
  absl::Status Listen();
  // Once the server listens: the sweeper tells the health service what it finds.
  void StartSweeping();
  void SweepUntilStopped();
  void StopSweeping();
  // Whether the store took a write when it was tried last.
  absl::Status StoreStatus() const;
  // Tells the health service what the server can do now.
  void TellHealth(const absl::Status& store);

  prometheus::Registry unseen_registry_;
  std::unique_ptr<ServerMetrics> unseen_metrics_;
  ServerMetrics* const metrics_;
  const Options options_;
  Store* const store_;
  Worker planning_threads_;
  JobRegistry registry_;
  StreamSet streams_;
  Worker question_threads_;
  Worker intake_threads_;
  ServingGate gate_;
  const Authenticator open_door_{nullptr};
  const std::unique_ptr<AuditLog> log_only_;
  const CallDoor door_;
  PeerStreams peers_;
  ByteBudget tape_budget_;
  PlannerServiceImpl service_;
  std::unique_ptr<grpc::Server> grpc_server_;
  std::string address_;
  std::atomic<bool> drained_ = false;
  absl::Mutex sweep_mutex_;
  bool stop_sweeping_ ABSL_GUARDED_BY(sweep_mutex_) = false;
  mutable absl::Mutex health_mutex_;
  absl::Status store_status_ ABSL_GUARDED_BY(health_mutex_);  // told last
  ScrapedValues values_;                                      // not changed after construction
  const JobMetrics job_metrics_;
  std::thread sweeper_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_SERVER_H_
