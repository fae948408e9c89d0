#include "server/metrics/server_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/common/version.h"
#include "server/metrics/metrics_page.h"

namespace tidetape::server {
namespace {

using testing::HasSubstr;

class ServerMetricsTest : public testing::Test {
 protected:
  std::string Page() const { return RenderMetrics({&registry_}); }

  prometheus::Registry registry_;
  ServerMetrics metrics_{&registry_};
};

TEST_F(ServerMetricsTest, BuildInfoNamesTheVersion) {
  EXPECT_THAT(Page(), HasSubstr(std::string("\ntidetape_build_info{version=\"") + kVersion + "\"} 1\n"));
}

TEST_F(ServerMetricsTest, MessagesAreCountedByKind) {
  metrics_.TookMessage(v1::ConnectRequest::kStepReport);
  metrics_.TookMessage(v1::ConnectRequest::kStepReport);
  metrics_.TookMessage(v1::ConnectRequest::kHello);
  metrics_.TookMessage(static_cast<v1::ConnectRequest::MessageCase>(999));  // of a newer agent
  EXPECT_THAT(Page(), HasSubstr("\ntidetape_server_messages_total{kind=\"step_report\"} 2\n"));
  EXPECT_THAT(Page(), HasSubstr("\ntidetape_server_messages_total{kind=\"hello\"} 1\n"));
  EXPECT_THAT(Page(), HasSubstr("\ntidetape_server_messages_total{kind=\"tape_chunk\"} 0\n"));
  EXPECT_THAT(Page(), HasSubstr("\ntidetape_server_messages_total{kind=\"unknown\"} 1\n"));
}

TEST_F(ServerMetricsTest, AcknowledgementsFallIntoTheirBuckets) {
  metrics_.Acknowledged(absl::Milliseconds(4));
  metrics_.Acknowledged(absl::Milliseconds(40));
  const std::string page = Page();
  EXPECT_THAT(page, HasSubstr("\ntidetape_server_acknowledgement_seconds_bucket{le=\"0.0025\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("\ntidetape_server_acknowledgement_seconds_bucket{le=\"0.005\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("\ntidetape_server_acknowledgement_seconds_bucket{le=\"0.05\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("\ntidetape_server_acknowledgement_seconds_count 2\n"));
}

TEST_F(ServerMetricsTest, RefusalsAreCountedByReasonFromZero) {
  EXPECT_THAT(Page(), HasSubstr("\ntidetape_server_calls_refused_total{reason=\"unauthenticated\"} 0\n"));
  metrics_.RefusedCall(absl::StatusCode::kUnauthenticated);
  metrics_.ClosedStream(absl::StatusCode::kInvalidArgument);
  metrics_.ClosedStream(absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Page(), HasSubstr("\ntidetape_server_calls_refused_total{reason=\"unauthenticated\"} 1\n"));
  EXPECT_THAT(Page(), HasSubstr("\ntidetape_server_streams_closed_total{reason=\"invalid_argument\"} 2\n"));
}

TEST_F(ServerMetricsTest, TransactionsCountTheirWritesAndFailures) {
  metrics_.OnTransaction(3, absl::Milliseconds(2), true);
  metrics_.OnTransaction(60, absl::Seconds(3), false);
  const std::string page = Page();
  EXPECT_THAT(page, HasSubstr("\ntidetape_server_store_write_seconds_bucket{le=\"0.0025\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("\ntidetape_server_store_write_seconds_bucket{le=\"5\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("\ntidetape_server_store_batch_writes_bucket{le=\"4\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("\ntidetape_server_store_batch_writes_sum 63\n"));
  EXPECT_THAT(page, HasSubstr("\ntidetape_server_store_failures_total 1\n"));
}

TEST_F(ServerMetricsTest, PlansAreTimedAndTheirFailuresCounted) {
  metrics_.Planned(absl::Milliseconds(20), true);
  metrics_.Planned(absl::Milliseconds(20), false);
  metrics_.DroppedEvent();
  const std::string page = Page();
  EXPECT_THAT(page, HasSubstr("\ntidetape_server_planning_seconds_count 2\n"));
  EXPECT_THAT(page, HasSubstr("\ntidetape_server_planning_failures_total 1\n"));
  EXPECT_THAT(page, HasSubstr("\ntidetape_server_watch_events_dropped_total 1\n"));
}

}  // namespace
}  // namespace tidetape::server
