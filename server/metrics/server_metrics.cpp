#include "server/metrics/server_metrics.h"

#include "absl/strings/ascii.h"
#include "server/common/version.h"

namespace tidetape::server {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildHistogram;
using prometheus::Histogram;
using prometheus::Registry;

const Histogram::BucketBoundaries& IoSeconds() {
  static const auto* const kBounds =
      new Histogram::BucketBoundaries{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10};
  return *kBounds;
}

// As in "permission_denied"; the codes of gRPC are few, so the label is bounded.
std::string Reason(absl::StatusCode code) { return absl::AsciiStrToLower(absl::StatusCodeToString(code)); }

Histogram& AddHistogram(Registry* registry, const std::string& name, const std::string& help,
                        const Histogram::BucketBoundaries& bounds) {
  return BuildHistogram().Name(name).Help(help).Register(*registry).Add({}, bounds);
}

prometheus::Counter& AddCounter(Registry* registry, const std::string& name, const std::string& help) {
  return BuildCounter().Name(name).Help(help).Register(*registry).Add({});
}

}  // namespace

ServerMetrics::ServerMetrics(Registry* registry)
    : acknowledgement_seconds_(AddHistogram(registry, "tidetape_server_acknowledgement_seconds",
                                            "From reading an agent's message to its acknowledgement, with the store's write.",
                                            IoSeconds())),
      refused_calls_(BuildCounter()
                         .Name("tidetape_server_calls_refused_total")
                         .Help("Calls that were refused before they began, by the status they ended with.")
                         .Register(*registry)),
      closed_streams_(BuildCounter()
                          .Name("tidetape_server_streams_closed_total")
                          .Help("Agents' streams that the server ended with an error, by the status.")
                          .Register(*registry)),
      dropped_events_(
          AddCounter(registry, "tidetape_server_watch_events_dropped_total", "Events that a watcher of a job was too slow for.")),
      planning_seconds_(AddHistogram(registry, "tidetape_server_planning_seconds", "Time to compute one plan of a step.",
                                     {0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100})),
      planning_failures_(
          AddCounter(registry, "tidetape_server_planning_failures_total", "Plans that could not be computed; the log says why.")),
      committed_plans_(BuildCounter()
                           .Name("tidetape_server_plans_committed_total")
                           .Help("Plans that were committed, by why they were made.")
                           .Register(*registry)),
      store_write_seconds_(AddHistogram(registry, "tidetape_server_store_write_seconds",
                                        "Time of one transaction, from its begin to stable storage.", IoSeconds())),
      store_batch_writes_(AddHistogram(registry, "tidetape_server_store_batch_writes", "Writes that shared one transaction.",
                                       {1, 4, 16, 64, 256, 1024, 4096})),
      store_failures_(AddCounter(registry, "tidetape_server_store_failures_total", "Transactions that were not committed.")) {
  prometheus::BuildGauge()
      .Name("tidetape_build_info")
      .Help("1, with the server's version.")
      .Register(*registry)
      .Add({{"version", kVersion}})
      .Set(1);
  auto& messages =
      BuildCounter().Name("tidetape_server_messages_total").Help("Messages of agents that were read, by kind.").Register(*registry);
  using Request = v1::ConnectRequest;
  const std::map<Request::MessageCase, std::string> kinds = {
      {Request::kHello, "hello"},        {Request::kTapeChunk, "tape_chunk"},         {Request::kStepReport, "step_report"},
      {Request::kPlanHeld, "plan_held"}, {Request::kPlanActivated, "plan_activated"}, {Request::MESSAGE_NOT_SET, "unknown"}};
  for (const auto& [kind, name] : kinds) messages_[kind] = &messages.Add({{"kind", name}});
  // There from the start, so that a rate sees the first one.
  for (const auto reason : {absl::StatusCode::kUnauthenticated, absl::StatusCode::kPermissionDenied,
                            absl::StatusCode::kResourceExhausted, absl::StatusCode::kUnavailable}) {
    refused_calls_.Add({{"reason", Reason(reason)}});
  }
  for (const auto reason :
       {absl::StatusCode::kInvalidArgument, absl::StatusCode::kFailedPrecondition, absl::StatusCode::kAborted,
        absl::StatusCode::kPermissionDenied, absl::StatusCode::kResourceExhausted, absl::StatusCode::kUnavailable}) {
    closed_streams_.Add({{"reason", Reason(reason)}});
  }
}

void ServerMetrics::TookMessage(v1::ConnectRequest::MessageCase kind) {
  const auto known = messages_.find(kind);
  (known == messages_.end() ? messages_.at(v1::ConnectRequest::MESSAGE_NOT_SET) : known->second)->Increment();
}

void ServerMetrics::Acknowledged(absl::Duration after) { acknowledgement_seconds_.Observe(absl::ToDoubleSeconds(after)); }

void ServerMetrics::RefusedCall(absl::StatusCode reason) { refused_calls_.Add({{"reason", Reason(reason)}}).Increment(); }

void ServerMetrics::ClosedStream(absl::StatusCode reason) { closed_streams_.Add({{"reason", Reason(reason)}}).Increment(); }

void ServerMetrics::CommittedPlan(const std::string& cause) { committed_plans_.Add({{"cause", cause}}).Increment(); }

void ServerMetrics::Planned(absl::Duration took, bool ok) {
  planning_seconds_.Observe(absl::ToDoubleSeconds(took));
  if (!ok) planning_failures_.Increment();
}

void ServerMetrics::OnTransaction(size_t writes, absl::Duration took, bool committed) {
  store_write_seconds_.Observe(absl::ToDoubleSeconds(took));
  store_batch_writes_.Observe(static_cast<double>(writes));
  if (!committed) store_failures_.Increment();
}

}  // namespace tidetape::server
