// The link to a server: one thread that keeps a Connect stream open as long as it can.
//
// The thread sleeps in its completion queue until the network, a caller or a deadline wakes it. Callers put copies into the outbox
// and never wait for it. When the server is away the outbox fills up to its bounds, the last plan stays in force, and the thread
// tries again with growing pauses. Where several servers are named, or one that stands by names the leader, it goes from one to the
// next without a pause until it has asked each. A server that refuses this incarnation of the job (FAILED_PRECONDITION) ends the
// link for good.
#ifndef TIDETAPE_AGENT_LINK_GRPC_LINK_H_
#define TIDETAPE_AGENT_LINK_GRPC_LINK_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "agent/link/backoff.h"
#include "agent/link/outbox.h"
#include "agent/link/planner_link.h"
#include "agent/link/server_list.h"
#include "agent/link/wakeable_queue.h"
#include "net/client_security.h"
#include "tidetape/v1/planner_service.grpc.pb.h"

namespace tidetape::link {

class ConnectCall;

class GrpcLink : public PlannerLink {
 public:
  struct Tuning {
    // Reports that wait for the stream; the oldest is dropped beyond this.
    size_t report_capacity = 64;
    // While reports come one after another, those without a profile leave together this often: a wake-up a step would cost the
    // training thread and its cores more than the report itself.
    std::chrono::milliseconds report_interval{250};
    // Between the end of a stream and the next attempt; where there are several servers, between asking all and asking all again.
    Backoff::Options backoff;
    // Between two servers.
    std::chrono::milliseconds next_server_pause{50};
    // gRPC's own pauses between connection attempts, and the least time that it gives one.
    std::chrono::milliseconds reconnect_initial{200};
    std::chrono::milliseconds reconnect_ceiling{1000};
    std::chrono::milliseconds connect_timeout{2000};
    // A server that has not said Welcome by then is given up.
    std::chrono::milliseconds welcome_timeout{10000};
    // A stream that lived this long starts the pauses anew.
    std::chrono::milliseconds healthy_after{2000};
    // A server that drains or was told goodbye has this long to end the stream.
    std::chrono::milliseconds goodbye_timeout{1000};
    // Pings on a silent connection, and how long an answer may take. The server must permit pings at this interval.
    std::chrono::milliseconds keepalive_interval{20000};
    std::chrono::milliseconds keepalive_timeout{10000};
  };

  // Certificates and the token come from the files that `security` names, which are read at every attempt to connect.
  GrpcLink(LinkOptions options, const Tuning& tuning, net::ClientSecurity security = net::SecurityFromEnvironment());
  ~GrpcLink() override;

  bool HasTape(uint64_t structure_hash) const override;
  tt_link_status PutTape(planner::BlockTape tape) override;
  tt_link_status ReportStep(StepReport report) override;
  tt_link_status PlanActivated(int64_t generation, int64_t step) override;
  tt_link_status SetMemoryLimit(int64_t memory_limit_bytes) override;
  LinkState State() const override;
  void Close(std::chrono::duration<double> timeout) override;

 private:
  using Clock = std::chrono::steady_clock;

  // The link's thread.
  void Run();
  void StartCall();
  // A stub for the server of the next attempt, with what the files say now.
  absl::Status PrepareStub();
  // Chooses the server of the next attempt, and says how long to wait for it.
  Clock::duration NextAttempt(const grpc::Status& status, bool welcomed);
  void Advance(Clock::time_point now);
  void EndCall(Clock::time_point now);
  Clock::time_point NextDeadline() const;

  // Sends what waits together, or lets the next report wake the thread where nothing waits.
  void Flush(Clock::time_point now);

  // From any thread.
  void WakeIfStreaming();

  const LinkOptions options_;
  const Tuning tuning_;
  const net::ClientSecurity security_;
  Outbox outbox_;

  // Whether the stream takes messages, so that a caller's news is worth a wake-up.
  std::atomic<bool> streaming_{false};
  // The thread looks for reports at flush_at_ by itself.
  std::atomic<bool> flush_armed_{false};
  std::atomic<bool> superseded_{false};
  std::atomic<bool> closing_{false};
  std::atomic<int64_t> reconnects_{0};
  mutable std::mutex error_mutex_;
  std::string error_;

  // Written by Close() before `closing_`, read after it.
  Clock::time_point close_deadline_;

  // The link's thread's own.
  ServerList servers_;
  // The server of stub_, and what proves who is who there.
  std::string connected_to_;
  net::ClientCredentials credentials_;
  std::unique_ptr<v1::PlannerService::Stub> stub_;
  std::unique_ptr<ConnectCall> call_;
  Backoff backoff_;
  Clock::time_point retry_at_;
  Clock::time_point flush_at_;
  Clock::time_point connected_at_;
  int64_t streams_ = 0;  // that reached Welcome
  bool finished_ = false;

  WakeableQueue queue_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace tidetape::link

#endif  // TIDETAPE_AGENT_LINK_GRPC_LINK_H_
