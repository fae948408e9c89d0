// The server's end of one rank's stream.
//
// At most one read and one write are in flight. What waits to be written lies in an Outbox, so a slow reader costs bounded memory;
// and no more than kUnstored messages are read ahead of the store, so a slow store does, too.
//
// Every message is acknowledged by its sequence number once the job, and a durable store, has taken it and all before it;
// acknowledgements that wait coalesce. Messages that may wait for the store or cost time (the first hello, tapes) are handled on
// the intake's threads, so that no gRPC thread waits; nothing else is read meanwhile.
//
// Finish is called exactly once: by the first of an error, a cancellation, Close, or the end of the peer's side, once all that it
// sent has been acknowledged.
#ifndef TIDETAPE_SERVER_SERVICE_AGENT_STREAM_H_
#define TIDETAPE_SERVER_SERVICE_AGENT_STREAM_H_

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "server/auth/rights.h"
#include "server/common/worker.h"
#include "server/job/job.h"
#include "server/job/rank_channel.h"
#include "server/messages/byte_budget.h"
#include "server/messages/tape_assembler.h"
#include "server/messages/validate.h"
#include "server/metrics/server_metrics.h"
#include "server/service/job_registry.h"
#include "server/service/outbox.h"
#include "server/service/rate_limit.h"
#include "server/service/stream_set.h"
#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::server {

class AgentStream final : public grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse>,
                          public RankChannel,
                          public DrainableStream,
                          public std::enable_shared_from_this<AgentStream> {
 public:
  // Messages that are read before the store has the first of them.
  static constexpr size_t kUnstored = 64;

  // Who is at the other end.
  struct Peer {
    Principal who;
    std::shared_ptr<void> place;  // among the peer's streams; held as long as the stream is open
  };

  // What the stream works with; all outlive it.
  struct Parts {
    JobRegistry* registry = nullptr;
    StreamSet* streams = nullptr;
    Worker* intake = nullptr;
    ByteBudget* tape_budget = nullptr;
    ServerMetrics* metrics = nullptr;
    // A peer that sends more in the long run (0: any number) is read more slowly.
    double messages_per_second = 0;
  };

  // Begins to read. The stream owns itself until gRPC and the store are done with it.
  static AgentStream* Start(const Parts& parts, Peer peer);

  // RankChannel. From any thread.
  void SendPlan(std::shared_ptr<const v1::Plan> plan) override;
  void RequestTapes(const std::vector<uint64_t>& structure_hashes) override;
  void Close(const absl::Status& status) override;

  void Drain(absl::Duration reconnect_after) override;

  // gRPC's callbacks.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  AgentStream(const Parts& parts, Peer peer);

  // Handles the message that was read, in place or on the intake.
  void Dispatch();
  // Ends the handling of a message with what it came to; the next one may be read.
  void Handled(const absl::Status& status);
  void ReadNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakeSequence(const v1::ConnectRequest& request);
  // The `stored` of the message with this sequence.
  Job::Stored StoredAs(int64_t sequence);
  // Ends the stream because of what the server found, and counts it.
  void Refuse(const absl::Status& status);
  // The message is stored, or could not be.
  void Stored(int64_t sequence, const absl::Status& status);

  absl::Status TakeFirstHello(const v1::Hello& hello, int64_t sequence);
  absl::Status TakeLaterHello(const v1::Hello& hello, int64_t sequence);
  absl::Status TakeTape(const v1::BlockTape& tape, int64_t sequence);
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishWhenAllIsSaid() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Once gRPC is done and the intake is not at work.
  void Leave();

  const Parts parts_;
  Peer peer_;
  std::shared_ptr<AgentStream> self_;

  // Of the read in flight and its handling; one at a time.
  v1::ConnectRequest request_;
  Sender sender_;
  std::shared_ptr<Job> job_;  // null before the first hello was taken
  TapeAssembler assembler_;

  absl::Mutex mutex_;
  std::optional<RateLimit> limit_ ABSL_GUARDED_BY(mutex_);
  grpc::Alarm turn_;  // of the next read, where the peer is too fast
  Outbox outbox_ ABSL_GUARDED_BY(mutex_);
  v1::ConnectResponse response_;  // of the write in flight
  int64_t last_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, absl::Time> unstored_ ABSL_GUARDED_BY(mutex_);  // by sequence, when they were read
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool handling_ ABSL_GUARDED_BY(mutex_) = false;      // a message that was read
  bool reading_late_ ABSL_GUARDED_BY(mutex_) = false;  // the next read waits for the store
  bool peer_ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool peer_lost_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool goodbye_ ABSL_GUARDED_BY(mutex_) = false;  // finished because the peer ended its side
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_SERVICE_AGENT_STREAM_H_
