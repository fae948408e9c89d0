// The server's end of one rank's stream.
//
// At most one read and one write are in flight. What waits to be written lies in an Outbox, so a slow reader costs bounded memory.
// Every message is acknowledged by its sequence number once the job, and a durable store, has taken it; acknowledgements that wait
// coalesce. Finish is called exactly once: by the first of an error, the peer's end, a cancellation, or Close.
#ifndef TIDETAPE_SERVER_AGENT_STREAM_H_
#define TIDETAPE_SERVER_AGENT_STREAM_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "server/job.h"
#include "server/job_registry.h"
#include "server/outbox.h"
#include "server/rank_channel.h"
#include "server/stream_set.h"
#include "server/tape_assembler.h"
#include "server/validate.h"
#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::server {

class AgentStream final : public grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse>,
                          public RankChannel,
                          public DrainableStream,
                          public std::enable_shared_from_this<AgentStream> {
 public:
  // Begins to read. The stream owns itself until gRPC is done with it; registry and streams outlive it.
  static AgentStream* Start(JobRegistry* registry, StreamSet* streams);

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
  AgentStream(JobRegistry* registry, StreamSet* streams) : registry_(registry), streams_(streams) {}

  absl::Status Take(const v1::ConnectRequest& request);
  absl::Status TakeHello(const v1::Hello& hello);
  absl::Status TakeTapeChunk(const v1::TapeChunk& chunk);
  absl::Status TakeReport(const v1::StepReport& report);
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  JobRegistry* const registry_;
  StreamSet* const streams_;
  std::shared_ptr<AgentStream> self_;

  // Of the read in flight; gRPC runs one OnReadDone at a time.
  v1::ConnectRequest request_;
  int64_t last_sequence_ = 0;
  Sender sender_;
  std::shared_ptr<Job> job_;  // null before the first hello was taken
  TapeAssembler assembler_;

  absl::Mutex mutex_;
  Outbox outbox_ ABSL_GUARDED_BY(mutex_);
  v1::ConnectResponse response_;  // of the write in flight
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_AGENT_STREAM_H_
