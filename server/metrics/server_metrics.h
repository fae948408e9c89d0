// What the server counts of its own work as it happens. What can be read at any time instead (open streams, queues) is in
// server.cpp, what jobs report in job_metrics.h.
#ifndef TIDETAPE_SERVER_METRICS_SERVER_METRICS_H_
#define TIDETAPE_SERVER_METRICS_SERVER_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/store/store_observer.h"
#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::server {

// Thread-safe. Names and labels are described in docs/operations.md.
class ServerMetrics final : public StoreObserver {
 public:
  // The registry outlives the metrics, and serves one ServerMetrics only.
  explicit ServerMetrics(prometheus::Registry* registry);

  // A message of an agent was read and is about to be handled.
  void TookMessage(v1::ConnectRequest::MessageCase kind);

  // A message was acknowledged this long after it was read.
  void Acknowledged(absl::Duration after);

  // A call was refused at the door; `reason` is the status that it ended with.
  void RefusedCall(absl::StatusCode reason);

  // The server ended an agent's stream that had begun.
  void ClosedStream(absl::StatusCode reason);

  // Events of a job that a watcher was too slow for.
  void DroppedEvent() { dropped_events_.Increment(); }

  // A plan was committed; `cause` is one of PlanCauseName's.
  void CommittedPlan(const std::string& cause);

  // A plan was computed, or could not be.
  void Planned(absl::Duration took, bool ok);

  void OnTransaction(size_t writes, absl::Duration took, bool committed) override;

 private:
  std::map<v1::ConnectRequest::MessageCase, prometheus::Counter*> messages_;  // not changed after construction
  prometheus::Histogram& acknowledgement_seconds_;
  prometheus::Family<prometheus::Counter>& refused_calls_;
  prometheus::Family<prometheus::Counter>& closed_streams_;
  prometheus::Counter& dropped_events_;
  prometheus::Histogram& planning_seconds_;
  prometheus::Counter& planning_failures_;
  prometheus::Family<prometheus::Counter>& committed_plans_;
  prometheus::Histogram& store_write_seconds_;
  prometheus::Histogram& store_batch_writes_;
  prometheus::Counter& store_failures_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_METRICS_SERVER_METRICS_H_
