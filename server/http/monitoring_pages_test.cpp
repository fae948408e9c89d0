#include "server/http/monitoring_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "server/auth/token_file.h"
#include "server/common/clock.h"
#include "server/testing/test_certificates.h"

namespace tidetape::server {
namespace {

class MonitoringPagesTest : public testing::Test {
 protected:
  MonitoringPagesTest() : files_("monitoring-pages") {
    std::ofstream(files_.File("tokens")) << files_.MakeToken("grafana", "reader") << files_.MakeToken("trainer", "agent", "*")
                                         << files_.MakeToken("ada", "operator");
    auto tokens = TokenFile::Open(files_.File("tokens"), &clock_);
    EXPECT_TRUE(tokens.ok()) << tokens.status();
    with_tokens_ = std::make_unique<Authenticator>(*std::move(tokens));
  }

  // Of the page with the token of this name; empty: none.
  HttpResponse Get(const std::string& page, const std::string& name, const Authenticator& authenticator) {
    const auto pages = MakeMonitoringPages({&authenticator, [this] { return ready_; }, [] { return std::string("up 1\n"); }});
    HttpRequest request;
    if (!name.empty()) request.authorization = "Bearer token-of-" + name;
    return pages.at(page)(request);
  }

  TestCertificates files_;
  SystemClock clock_;
  std::unique_ptr<Authenticator> with_tokens_;
  const Authenticator open_{nullptr};
  absl::Status ready_;
};

TEST_F(MonitoringPagesTest, MetricsTakeTheTokenOfAReaderOrAnOperator) {
  const std::vector<std::pair<std::string, int>> expected = {
      {"", 401}, {"nobody", 401}, {"trainer", 403}, {"grafana", 200}, {"ada", 200}};
  for (const auto& [name, status] : expected) {
    const HttpResponse response = Get("/metrics", name, *with_tokens_);
    EXPECT_EQ(response.status, status) << name;
    EXPECT_EQ(response.body == "up 1\n", status == 200) << name;
    EXPECT_EQ(response.headers.count("WWW-Authenticate"), status == 401 ? 1u : 0u) << name;
  }
  EXPECT_EQ(Get("/metrics", "", open_).status, 200);
  EXPECT_EQ(Get("/metrics", "", open_).content_type, "text/plain; version=0.0.4; charset=utf-8");
}

TEST_F(MonitoringPagesTest, ProbesNeedNoTokenAndStrangersAreNotToldWhy) {
  EXPECT_EQ(Get("/healthz", "", *with_tokens_).status, 200);
  EXPECT_EQ(Get("/readyz", "", *with_tokens_).status, 200);
  ready_ = absl::UnavailableError("the disk is full");
  EXPECT_EQ(Get("/healthz", "", *with_tokens_).status, 200);
  EXPECT_EQ(Get("/readyz", "", *with_tokens_).status, 503);
  EXPECT_EQ(Get("/readyz", "", *with_tokens_).body, "not ready\n");
  EXPECT_EQ(Get("/readyz", "trainer", *with_tokens_).body, "not ready\n");
  EXPECT_EQ(Get("/readyz", "grafana", *with_tokens_).body, "not ready: the disk is full\n");
  EXPECT_EQ(Get("/readyz", "", open_).body, "not ready: the disk is full\n");
}

}  // namespace
}  // namespace tidetape::server
