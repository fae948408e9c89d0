// The server's end of WatchJob: a summary at once, then events and newer summaries as they come.
#ifndef TIDETAPE_SERVER_SERVICE_WATCH_STREAM_H_
#define TIDETAPE_SERVER_SERVICE_WATCH_STREAM_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "server/job/event_log.h"
#include "server/job/job.h"
#include "server/metrics/server_metrics.h"
#include "server/service/stream_set.h"
#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::server {

// One write is in flight; events wait in a ring that drops the oldest and counts them, of summaries only the newest is sent.
class WatchStream final : public grpc::ServerWriteReactor<v1::WatchJobResponse>, public JobWatcher, public DrainableStream {
 public:
  // Events that wait for a slow watcher.
  static constexpr size_t kWaitingEvents = 256;

  // The stream owns itself until gRPC is done with it; `streams` and `metrics` outlive it.
  static WatchStream* Start(std::shared_ptr<Job> job, StreamSet* streams, ServerMetrics* metrics);

  void OnEvent(const v1::JobEvent& event) override;
  void OnProgress() override;
  void Drain(absl::Duration reconnect_after) override;

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  WatchStream(std::shared_ptr<Job> job, StreamSet* streams, ServerMetrics* metrics)
      : job_(std::move(job)), streams_(streams), metrics_(metrics) {}

  void Close(const absl::Status& status);
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<Job> job_;
  StreamSet* const streams_;
  ServerMetrics* const metrics_;
  std::shared_ptr<WatchStream> self_;

  absl::Mutex mutex_;
  std::deque<v1::JobEvent> events_ ABSL_GUARDED_BY(mutex_);
  int64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  bool summary_waits_ ABSL_GUARDED_BY(mutex_) = true;
  v1::WatchJobResponse response_;  // of the write in flight
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_SERVICE_WATCH_STREAM_H_
